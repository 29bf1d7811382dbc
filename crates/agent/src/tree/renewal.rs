//! Certificates are renewed long before they end: a machine makes a new key and asks for a
//! certificate of it, up the tree to the head, whose authority signs it again for the name that it
//! has.
//!
//! The agent that asks is known by the certificate that its connection began with: a parent passes
//! on what a child asks for itself, with the key that it has shown, or for a node of its branch,
//! which it speaks for anyway. The head has the keys on record that a member may show, and refuses
//! the former holder of the name. Connections that are there go on; those that begin from then on
//! show the new one. When the machine's clock says nonsense, it asks too early or too late, but it
//! goes on asking over the connection that it has.

use super::{Tree, monotonic_ns};
use crate::routes::Child;
use anyhow::Context;
use tracing::warn;
use tutti_node::membership::Place;
use tutti_secure::{Clock, Credentials, Fingerprint, Key};
use tutti_wire::branch::{FromBranch, ToBranch};
use tutti_wire::code::Code;

/// Into so many parts the life of a certificate is divided: at the end of each is looked whether it
/// is time.
const LOOKS: u64 = 60;

/// The limits of that, in seconds.
const LOOK_LEAST_S: u64 = 1;
const LOOK_MOST_S: u64 = 3600;

/// What this machine shows, and what it has asked for.
#[derive(Debug, Default)]
pub(super) struct Renewal {
    credentials: Option<Credentials>,
    /// The key that a certificate was asked for.
    asked: Option<Key>,
    look_at_ns: Option<u64>,
}

impl Renewal {
    /// That of a machine which keeps its credentials there.
    pub(super) fn of(place: &Place) -> anyhow::Result<Self> {
        let mut renewal = Self { credentials: Some(place.credentials()?), ..Self::default() };
        renewal.plan(monotonic_ns());
        Ok(renewal)
    }

    /// When it is to be looked whether it is time.
    pub(super) const fn due_ns(&self) -> Option<u64> {
        self.look_at_ns
    }

    fn plan(&mut self, now_ns: u64) {
        let wait = |credentials: &Credentials| {
            let part_s = credentials.lifetime().as_secs() / LOOKS;
            now_ns + part_s.clamp(LOOK_LEAST_S, LOOK_MOST_S) * 1_000_000_000
        };
        self.look_at_ns = self.credentials.as_ref().map(wait);
    }

    /// Whether it is time to ask.
    fn is_due(&mut self, now_ns: u64) -> bool {
        if self.look_at_ns.is_none_or(|at_ns| at_ns > now_ns) {
            return false;
        }
        self.plan(now_ns);
        let now = Clock::system().now();
        self.credentials.as_ref().is_some_and(|credentials| credentials.renewal_due(now))
    }
}

impl Tree {
    /// Asks for a new certificate, if it is time.
    pub(super) fn look_at_certificate(&mut self, now_ns: u64) {
        if self.entrance.renewal.is_due(now_ns)
            && let Err(error) = self.ask_for_certificate()
        {
            warn!(code = %Code::NotTrusted, "cannot renew the certificate: {error:#}");
        }
    }

    fn ask_for_certificate(&mut self) -> anyhow::Result<()> {
        // An answer may be under way, and is for the key that was asked for.
        let key = self.entrance.renewal.asked.take().map_or_else(Key::generate, Ok)?;
        let (name, request) = (self.options.name.clone(), key.request()?);
        let key_now = self.entrance.renewal.credentials.as_ref().map(Credentials::key_fingerprint);
        let key_now = key_now.context("there was none before")?;
        self.entrance.renewal.asked = Some(key);
        if self.options.is_root() {
            let certificate = self.options.place.sign_again(&name, [key_now; 2], &request)?;
            return self.take_certificate(&certificate);
        }
        if let Some(up) = self.above.up.as_mut().filter(|_| self.routes.own().is_some()) {
            let (shown, current) = ([0; Fingerprint::BYTES], *key_now.as_bytes());
            up.neighbour.send(&FromBranch::Renew { name, request: request.into(), shown, current });
        }
        Ok(())
    }

    fn take_certificate(&mut self, certificate: &[u8]) -> anyhow::Result<()> {
        // An agent that asks again before there is an answer has another one coming.
        let Some(key) = self.entrance.renewal.asked.take() else { return Ok(()) };
        let before = self.entrance.renewal.credentials.as_ref().context("there was none before")?;
        let credentials = Credentials::new(key, certificate, before.authority_certificate())?;
        anyhow::ensure!(credentials.member() == before.member(), "it is for another machine");
        self.options.place.keep_credentials(&credentials)?;
        self.entrance.renewal.credentials = Some(credentials);
        self.entrance.renewal.plan(monotonic_ns());
        self.entrance.endpoint = Some(self.options.place.endpoint()?);
        Ok(())
    }

    /// A machine below asks for a new certificate.
    pub(super) fn on_renew(
        &mut self,
        child: Child,
        (name, request): (String, Vec<u8>),
        [shown, current]: [[u8; Fingerprint::BYTES]; 2],
    ) {
        let direct = self.branch.children.get(&child).filter(|below| below.is_named(&name));
        if direct.is_none() && self.routes.child_of(&name) != Some(child) {
            return;
        }
        let shown = direct.map_or(shown, |below| *below.key.as_bytes());
        if !self.options.is_root() {
            if let Some(up) = &mut self.above.up {
                let request = request.into();
                up.neighbour.send(&FromBranch::Renew { name, request, shown, current });
            }
            return;
        }
        let keys = [shown, current].map(Fingerprint::from_bytes);
        match self.options.place.sign_again(&name, keys, &request) {
            Ok(certificate) => self.on_renewed(name, certificate),
            Err(error) => {
                warn!(code = %Code::NotTrusted, "{name} gets no new certificate: {error:#}")
            }
        }
    }

    /// A certificate for this machine, or one below.
    pub(super) fn on_renewed(&mut self, name: String, certificate: Vec<u8>) {
        if name == self.options.name {
            if let Err(error) = self.take_certificate(&certificate) {
                warn!(code = %Code::NotTrusted, "the new certificate is of no use: {error:#}");
            }
            return;
        }
        // One that was removed may still be there, and another have its name.
        let child = self.routes.child_of(&name);
        if let Some(below) = child.and_then(|child| self.branch.children.get_mut(&child)) {
            below.neighbour.send(&ToBranch::Renewed { name, certificate: certificate.into() });
        }
    }
}
