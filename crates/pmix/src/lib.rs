//! The PMIx server of a step on one node: a process of the job's user, started by the keeper.
//!
//! It loads OpenPMIx's library at run time (`library`), has it serve the tasks of the node, and
//! passes what they ask for on to the keeper (`calls`, `requests`). The library starts threads,
//! opens plug-ins and reads the machine; so it is in a process of its own, and the keeper takes
//! nothing that it says as given ([`tutti_wire::pmix`]).
//!
//! The process is outside of the frozen group of its job: a switch must not stop what other nodes
//! wait for. It runs code that the user chose, so it confines itself before it loads any
//! (`confine`): it can start no process and no program, and little memory is left to it. It ends
//! with its connection.
//!
//! All unsafe code beside that of `tutti-linux` is here.

mod calls;
mod confine;
mod infos;
mod library;
mod requests;
mod serve;
mod types;

pub use library::version_of;
pub use serve::serve;
