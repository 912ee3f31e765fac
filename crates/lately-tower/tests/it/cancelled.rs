//! Clients that go away.

use std::sync::Arc;

use lately::minutes;
use lately_tower::{Limits, by_async};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::{Notify, mpsc};

use crate::common::{build, head, now, serve};

/// What happens to the future of a key.
#[derive(PartialEq, Debug)]
enum Event {
    Started,
    Dropped,
}

/// Reports that it is dropped.
struct Guard(mpsc::UnboundedSender<Event>);

impl Drop for Guard {
    fn drop(&mut self) {
        // At the end of the test nobody listens.
        let _ = self.0.send(Event::Dropped);
    }
}

#[tokio::test]
async fn a_client_that_goes_away_while_its_key_is_computed_counts_nothing() {
    let (sender, mut events) = mpsc::unbounded_channel();
    let release = Arc::new(Notify::new());
    let key = {
        let release = Arc::clone(&release);
        move |_: &http::request::Parts| {
            let (sender, release) = (sender.clone(), Arc::clone(&release));
            async move {
                let _guard = Guard(sender.clone());
                sender.send(Event::Started).expect("the test listens");
                release.notified().await;
                Some("user")
            }
        }
    };
    let limits = build(Limits::builder().limit("user", by_async(key), 1, minutes(1)));
    let web = serve(&limits).await;

    let mut stream = TcpStream::connect(web.address).await.expect("it listens");
    stream.write_all(head("/", "").as_bytes()).await.expect("it reads");
    assert_eq!(events.recv().await, Some(Event::Started));
    drop(stream);
    assert_eq!(events.recv().await, Some(Event::Dropped));
    assert_eq!(limits.store().hits(b"user:user", minutes(1), now()).estimate, 0);

    // The whole limit is left for one who stays.
    release.notify_one();
    assert_eq!(web.get("").await.status(), 200);
    assert_eq!(limits.store().hits(b"user:user", minutes(1), now()).estimate, 1);
}
