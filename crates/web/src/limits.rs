//! The maximum of everything that a peer could make grow.

use std::time::Duration;

/// Maximum number of open connections. A further one is closed at once.
pub(crate) const CONNECTIONS_MAX: usize = 256;

/// Maximum number of readers of events and of output that is followed, together.
pub(crate) const READERS_MAX: usize = 128;

/// Maximum number of requests that ask the instance at a time or wait for that.
pub(crate) const QUESTIONS_MAX: usize = 64;

/// Threads that ask the instance.
pub(crate) const THREADS: usize = 8;

/// Maximum number of sessions. The oldest ends when another begins.
pub(crate) const SESSIONS_MAX: usize = 16;

/// Maximum length of the head of a request, with its address.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Maximum length of the body of a request.
pub(crate) const BODY_BYTES_MAX: usize = 4 << 10;

/// Maximum length of a job that is submitted, with its script.
pub(crate) const SUBMISSION_BYTES_MAX: usize = 256 << 10;

/// Time in which the head of a request, and its body, must arrive.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(10);

/// Time for which a reader may take nothing of what is sent. Then its connection is closed.
pub(crate) const WRITE_TIME: Duration = Duration::from_secs(20);

/// Events that are kept for readers. A reader that is further behind asks the instance for older
/// ones.
pub(crate) const EVENTS_KEPT: usize = 2048;

/// Time between two signs of life in a stream without events.
pub(crate) const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// For how long an answer of the instance is given to others that ask the same.
pub(crate) const ANSWER_FRESH: Duration = Duration::from_millis(200);

/// Maximum number of answers that are kept for that.
pub(crate) const ANSWERS_MAX: usize = 32;

/// Time between two looks at output that is followed.
pub(crate) const OUTPUT_PAUSE: Duration = Duration::from_millis(200);

/// Pieces that wait to be sent to one reader.
pub(crate) const PIECES_MAX: usize = 4;
