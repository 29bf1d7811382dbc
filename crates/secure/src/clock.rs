//! The time by which certificates are judged. This crate reads no clock but through this.

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Asked for the time whenever a peer's certificate is judged.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> UnixTime + Send + Sync>);

impl Clock {
    /// The machine's clock; one that is set before 1970 counts as 1970.
    #[must_use]
    pub fn system() -> Self {
        Self::new(|| {
            let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            UnixTime::since_unix_epoch(since.unwrap_or_default())
        })
    }

    /// What it says now.
    #[must_use]
    pub fn now(&self) -> UnixTime {
        (self.0)()
    }

    /// Any other.
    #[must_use]
    pub fn new(now: impl Fn() -> UnixTime + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.now())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

/// So much later.
pub(crate) fn after(time: UnixTime, span: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(time.as_secs()).saturating_add(span))
}

/// So much earlier, or the beginning of time.
pub(crate) fn before(time: UnixTime, span: Duration) -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(time.as_secs()).saturating_sub(span))
}
