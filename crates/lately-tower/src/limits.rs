//! Bounds of the layer.

use std::time::Duration;

use lately::{Span, seconds};

/// The longest name of a limit, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// The memory ceiling when none is set: 64 MiB.
pub const DEFAULT_CEILING_BYTES: u64 = 64 << 20;

/// How long a request waits for the Lately server when nothing else is set.
pub const DEFAULT_SERVER_TIMEOUT: Duration = Duration::from_millis(250);

/// How long the server is not asked after it could not be reached. Then one request asks again.
pub const SERVER_PAUSE: Span = seconds(1);
