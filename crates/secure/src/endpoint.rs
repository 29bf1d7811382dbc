//! Where connections begin: a member's [`Endpoint`], and a [`Newcomer`] that has nothing but a
//! token.

use crate::clock::Clock;
use crate::credentials::Credentials;
use crate::stream::SecureStream;
use crate::stream_error::StreamError;
use crate::token::Token;
use crate::verify::{ClientJudge, ServerJudge};
use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::{IpAddr, PrivateKeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::{
    ClientConfig, ClientConnection, ConfigBuilder, ConfigSide, Connection, ServerConfig,
    ServerConnection, WantsVerifier, version::TLS13,
};
use std::io;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;

/// A member's end of all its connections. When its certificate is renewed it makes a new one;
/// connections that are there go on.
#[derive(Clone, Debug)]
pub struct Endpoint {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Endpoint {
    /// The end of the member that has these credentials. `version` is that of the messages that are
    /// to go over its connections: peers of another are refused. By `clock` peers' certificates are
    /// judged.
    ///
    /// # Errors
    /// If the credentials can't be used for TLS.
    pub fn new(credentials: &Credentials, version: u16, clock: Clock) -> Result<Self, StreamError> {
        let (provider, clock) = (provider(), Arc::new(clock));
        let (authority, cluster) = (credentials.authority(), credentials.cluster());
        let key = || PrivateKeyDer::from(credentials.key().to_pkcs8());

        let judge = ClientJudge::new(authority, cluster, provider.clone())?;
        let builder = ServerConfig::builder_with_details(provider.clone(), clock.clone());
        let mut server = tls13(builder)?
            .with_client_cert_verifier(Arc::new(judge))
            .with_single_cert(credentials.chain(), key())?;
        server.alpn_protocols = vec![protocol(version)];
        // Each connection is judged anew.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});

        let judge = ServerJudge::of_authority(authority, cluster, &provider)?;
        let builder = ClientConfig::builder_with_details(provider, clock);
        let client = tls13(builder)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(judge))
            .with_client_auth_cert(credentials.chain(), key())?;
        Ok(Self { server: Arc::new(server), client: Arc::new(finish(client, version)) })
    }

    /// Takes over a connection that came in. Nothing is known of the peer until the handshake is
    /// over; nothing limits how long that takes but the caller.
    ///
    /// # Errors
    /// If the socket can't be used.
    pub fn accept(&self, socket: TcpStream) -> io::Result<SecureStream> {
        let tls = ServerConnection::new(self.server.clone()).map_err(StreamError::from)?;
        SecureStream::new(socket, Connection::Server(tls))
    }

    /// Takes over a connection to another member, which may also be on its way still.
    ///
    /// # Errors
    /// If the socket can't be used.
    pub fn connect(&self, socket: TcpStream) -> io::Result<SecureStream> {
        connect(&self.client, socket)
    }
}

/// The end of a machine that is to join, and has no certificate yet.
#[derive(Clone, Debug)]
pub struct Newcomer(Arc<ClientConfig>);

impl Newcomer {
    /// Connections of a machine with this token: to members of its cluster, and no others. For
    /// `version` and `clock`, see [`Endpoint::new`].
    ///
    /// # Errors
    /// If TLS can't be used at all.
    pub fn new(token: &Token, version: u16, clock: Clock) -> Result<Self, StreamError> {
        let provider = provider();
        let judge = ServerJudge::of_token(token.clone(), &provider);
        let builder = ClientConfig::builder_with_details(provider, Arc::new(clock));
        let client = tls13(builder)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(judge))
            .with_no_client_auth();
        Ok(Self(Arc::new(finish(client, version))))
    }

    /// Takes over a connection to a member, which may also be on its way still.
    ///
    /// # Errors
    /// If the socket can't be used.
    pub fn connect(&self, socket: TcpStream) -> io::Result<SecureStream> {
        connect(&self.0, socket)
    }
}

fn connect(config: &Arc<ClientConfig>, socket: TcpStream) -> io::Result<SecureStream> {
    // TLS wants the name of a host; none is sent, and none is looked at.
    let nobody = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED)));
    let tls = ClientConnection::new(config.clone(), nobody).map_err(StreamError::from)?;
    SecureStream::new(socket, Connection::Client(tls))
}

/// The same for both kinds of clients.
fn finish(mut client: ClientConfig, version: u16) -> ClientConfig {
    client.alpn_protocols = vec![protocol(version)];
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    client
}

fn protocol(version: u16) -> Vec<u8> {
    format!("tutti/{version}").into_bytes()
}

fn tls13<Side: ConfigSide>(
    builder: ConfigBuilder<Side, rustls::WantsVersions>,
) -> Result<ConfigBuilder<Side, WantsVerifier>, rustls::Error> {
    builder.with_protocol_versions(&[&TLS13])
}

/// The shorter key first: it is as safe for decades, and a third faster.
fn provider() -> Arc<CryptoProvider> {
    use ring::cipher_suite::{
        TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256,
    };
    let cipher_suites =
        vec![TLS13_AES_128_GCM_SHA256, TLS13_AES_256_GCM_SHA384, TLS13_CHACHA20_POLY1305_SHA256];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}
