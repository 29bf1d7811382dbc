//! Data without decisions: what the core knows, and containers that find it fast.
//!
//! A file here imports nothing of the core from outside this folder; a test of `core/tests`
//! checks that. Decisions stand above: they read and change what is here.
//!
//! - [`record`]: a job and its states, with the transitions between them;
//! - [`nodes`]: what each node has, whether it is up, and how much of its memory is admitted;
//! - [`table`], `ordered`: a map from job numbers, and a sorted list with summaries;
//! - `digest`: one number for a whole state.

pub mod nodes;
pub(crate) mod ordered;
pub mod record;
pub mod table;
