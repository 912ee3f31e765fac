//! Where lines of the log go.

use std::sync::Arc;

/// Gets each line of the log.
pub(crate) type Log = Arc<dyn Fn(&str) + Send + Sync>;
