//! The cluster's own authority, tokens to join by, and connections that only its members can make.
//!
//! Machines of a cluster talk over one TCP port, with TLS 1.3 and a certificate at each end.
//! Trust comes from an authority that belongs to this cluster alone. Joining works like this:
//!
//! 1. The first machine makes the [`Authority`], a [`Key`] of its own, and signs itself a
//!    certificate: key and certificate are its [`Credentials`], from which it has an [`Endpoint`].
//! 2. It gives out a [`Token`] from its [`Tokens`]. A machine that has the token connects as a
//!    [`Newcomer`]: by the token it knows its peer, though its peer does not know it. It sends
//!    the token's [`Secret`] and the [request](Key::request) of a key that it has just made.
//! 3. The first machine [redeems](Tokens::redeem) the token, [signs](Authority::sign) the request,
//!    and answers with the certificate and the [authority's](Authority::certificate). Now the
//!    machine has [`Credentials`], too, and keeps no token.
//! 4. Members [connect](Endpoint::connect) to each other and [accept](Endpoint::accept).
//!    [`SecureStream::peer`] names the other. One without a name is a newcomer and may redeem a
//!    token, nothing else.
//! 5. When [`Credentials::renewal_due`] says so, a member sends the request of a new key over such
//!    a connection, and has it signed for the role and name that its peer knows it by.
//!
//! What goes over the connections is not known here, nor are jobs or nodes; no other crate of ours
//! is. The only files are those of [`Authority`] and [`Credentials`], and the only clock is the one
//! that is passed in. Times are [`UnixTime`], in seconds.

#![forbid(unsafe_code)]

mod authority;
mod certificate;
mod clock;
mod credentials;
mod endpoint;
mod hash;
mod input;
mod key;
mod key_file;
pub mod limits;
mod name;
mod random;
mod stream;
mod stream_error;
mod token;
mod tokens;
mod verify;

pub use authority::{Authority, AuthorityError};
pub use certificate::{CertificateError, Fingerprint, NoFingerprint};
pub use clock::Clock;
pub use credentials::{Credentials, CredentialsError};
pub use endpoint::{Endpoint, Newcomer};
pub use key::{Key, KeyError};
pub use key_file::FileError;
pub use name::{Admission, Member, Name, NameError, Role, Users};
pub use random::{NoRandomness, random_number};
pub use rustls::pki_types::UnixTime;
pub use stream::{Peer, SecureStream};
pub use stream_error::StreamError;
pub use token::{Secret, Token, TokenError};
pub use tokens::{IssueError, Refusal, Tokens};
pub use verify::Distrust;
