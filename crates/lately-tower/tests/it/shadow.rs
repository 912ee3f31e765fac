//! Limits in shadow.

use lately::{minutes, seconds};
use lately_tower::{Limits, by_client_address};

use crate::common::{build_at, now, serve, standing_clock};

#[tokio::test]
async fn a_limit_in_shadow_denies_nothing_and_is_not_shown() {
    let clock = standing_clock();
    let builder = Limits::builder().shadow("strict", by_client_address(), 2, minutes(1)).limit(
        "ip",
        by_client_address(),
        5,
        minutes(1),
    );
    let limits = build_at(builder, &clock);
    let web = serve(&limits).await;
    assert_eq!(web.statuses(&["", "", "", ""]).await, [200; 4]);
    let fifth = web.get("").await;
    assert_eq!((fifth.status(), fifth.header("ratelimit").as_str()), (200, "\"ip\";r=0;t=60"));
    assert_eq!(limits.denials().collect::<Vec<_>>(), [("ip", 0), ("strict", 3)]);
    // A request that is denied counts for no shadow.
    assert_eq!(web.get("").await.status(), 429);
    assert_eq!(limits.denials().collect::<Vec<_>>(), [("ip", 1), ("strict", 3)]);
    assert_eq!(limits.store().hits(b"strict:127.0.0.1", minutes(1), now()).estimate, 2);
    // It slides as it would if it denied.
    clock.advance(seconds(60));
    assert_eq!(web.statuses(&["", ""]).await, [200; 2]);
    assert_eq!(limits.denials().collect::<Vec<_>>(), [("ip", 1), ("strict", 3)]);
}
