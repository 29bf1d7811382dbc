//! A webhook: one HTTP/1.1 request with the message as JSON, and the status of the answer.
//!
//! A request has a fixed form and of the answer only the first line counts, so this is by hand: a
//! client library would bring more code than it saves. TLS is rustls, as between machines of a
//! cluster, with the certificates that the system trusts.

use super::message::Message;
use anyhow::{Context, bail, ensure};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tutti_wire::notify::{HookUrl, answer_status};

/// The most that is read of an answer until its first line is whole.
const STATUS_BYTES_MAX: usize = 4 << 10;

/// Where systems keep the certificates that they trust, in one file.
const TRUSTED: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The variable that names another such file, as OpenSSL has it.
const TRUSTED_FILE: &str = "SSL_CERT_FILE";

/// Posts a message.
///
/// # Errors
/// If no server takes it with a status from 200 to 299.
pub(super) fn post(
    url: &str,
    key: Option<&[u8]>,
    message: &Message,
    until: Instant,
) -> anyhow::Result<()> {
    let hook = HookUrl::parse(url)?;
    let request = request_of(&hook, key, message);
    let stream = connect(&hook, until)?;
    match hook.is_tls {
        false => exchange(stream, request.as_bytes(), until, |_| {}),
        true => {
            let name = ServerName::try_from(hook.host.to_owned()).context("no name for TLS")?;
            let session = ClientConnection::new(Arc::new(trust()?), name)?;
            exchange(StreamOwned::new(session, stream), request.as_bytes(), until, |stream| {
                stream.conn.send_close_notify();
                let _ = stream.flush();
            })
        }
    }
}

fn request_of(hook: &HookUrl<'_>, key: Option<&[u8]>, message: &Message) -> String {
    let body = message.json();
    let path = if hook.path.is_empty() { "/" } else { hook.path };
    let mut request = format!(
        "POST {path} HTTP/1.1\r\nHost: {}\r\nUser-Agent: tutti/{}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\nX-Tutti-Notification: {}\r\nX-Tutti-Delivery: {}\r\n",
        hook.authority,
        env!("CARGO_PKG_VERSION"),
        body.len(),
        message.notification,
        message.number,
    );
    if let Some(key) = key {
        let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key);
        request.push_str("X-Tutti-Signature: sha256=");
        for byte in ring::hmac::sign(&key, body.as_bytes()).as_ref() {
            // Nothing of a text can't be written.
            let _ = write!(request, "{byte:02x}");
        }
        request.push_str("\r\n");
    }
    request + "\r\n" + &body
}

fn left(until: Instant) -> anyhow::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    ensure!(!left.is_zero(), "the server took too long");
    Ok(left)
}

/// A connection to the first of the host's addresses that answers.
fn connect(hook: &HookUrl<'_>, until: Instant) -> anyhow::Result<TcpStream> {
    let addresses = (hook.host, hook.port).to_socket_addrs();
    let addresses = addresses.with_context(|| format!("host {} is unknown", hook.host))?;
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, left(until)?) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = Some(error),
        }
    }
    match last {
        Some(error) => Err(error).with_context(|| format!("cannot connect to {}", hook.authority)),
        None => bail!("host {} has no address", hook.host),
    }
}

/// A connection whose every wait is bounded.
trait Bounded: Read + Write {
    fn socket(&self) -> &TcpStream;
}

impl Bounded for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Bounded for StreamOwned<ClientConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        &self.sock
    }
}

fn exchange<S: Bounded>(
    mut stream: S,
    request: &[u8],
    until: Instant,
    end: impl Fn(&mut S),
) -> anyhow::Result<()> {
    stream.socket().set_write_timeout(Some(left(until)?))?;
    stream.socket().set_read_timeout(Some(left(until)?))?;
    stream.write_all(request).and_then(|()| stream.flush()).context("the server broke off")?;
    let mut answer = Vec::new();
    while !answer.contains(&b'\n') {
        ensure!(answer.len() < STATUS_BYTES_MAX, "the server's answer is not HTTP");
        stream.socket().set_read_timeout(Some(left(until)?))?;
        let mut room = [0; 512];
        let count = match stream.read(&mut room) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                bail!("the server took too long")
            }
            Err(error) => return Err(error).context("the server broke off"),
        };
        answer.extend_from_slice(&room[..count]);
    }
    end(&mut stream);
    let status = answer_status(&answer).context("the server's answer is not HTTP")?;
    ensure!((200..300).contains(&status), "the server answered with status {status}");
    Ok(())
}

/// TLS that trusts what the system does.
fn trust() -> anyhow::Result<ClientConfig> {
    let named = std::env::var_os(TRUSTED_FILE).map(std::path::PathBuf::from);
    let found = TRUSTED.iter().map(Path::new).find(|path| path.exists()).map(Path::to_owned);
    let path = named.or(found).context("this machine has no file of trusted certificates")?;
    let mut roots = RootCertStore::empty();
    let certificates = CertificateDer::pem_file_iter(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    roots.add_parsable_certificates(certificates.filter_map(std::result::Result::ok));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}
