//! Where the server listens, and its connections.

use crate::limits::{CONNECTIONS_MAX, HEAD_BYTES_MAX, REQUEST_TIME, WRITE_TIME};
use crate::source::Failure;
use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, sleep_until};
use tutti_wire::code::Code;

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A loopback address.
    Tcp(SocketAddr),
    /// A Unix socket.
    Unix(PathBuf),
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err("name the socket, as in unix:/run/user/1000/tutti-web".into()),
                false => Ok(Self::Unix(path.into())),
            };
        }
        let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let Ok(address) = named.as_deref().unwrap_or(text).parse::<SocketAddr>() else {
            return Err("write an address with a port, such as 127.0.0.1:8080, or unix:PATH".into());
        };
        if !address.ip().is_loopback() {
            return Err(format!(
                "{} is no loopback address, and without TLS others could read along; listen on 127.0.0.1:{1}, and \
                 reach it from elsewhere by `ssh -L {2}:127.0.0.1:{1} MACHINE`",
                address.ip(),
                address.port(),
                if address.port() == 0 { 8080 } else { address.port() },
            ));
        }
        Ok(Self::Tcp(address))
    }
}

/// A socket that listens.
#[derive(Debug)]
pub struct Listening {
    socket: Socket,
}

#[derive(Debug)]
enum Socket {
    Tcp(std::net::TcpListener),
    Unix(std::os::unix::net::UnixListener, PathBuf),
}

impl Listening {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the address is in use, or the socket can't be made.
    pub fn at(place: &Place) -> Result<Self, Failure> {
        let socket = match place {
            Place::Tcp(address) => std::net::TcpListener::bind(address).map(Socket::Tcp),
            Place::Unix(path) => unix(path).map(|socket| Socket::Unix(socket, path.clone())),
        };
        let socket = socket.and_then(|socket| {
            match &socket {
                Socket::Tcp(socket) => socket.set_nonblocking(true)?,
                Socket::Unix(socket, _) => socket.set_nonblocking(true)?,
            }
            Ok(socket)
        });
        let socket = socket.map_err(|error| {
            let place = match place {
                Place::Tcp(address) => address.to_string(),
                Place::Unix(path) => path.display().to_string(),
            };
            Failure::new(
                Code::System,
                format!("cannot listen on {place}: {error}; choose another place by --listen"),
            )
        })?;
        Ok(Self { socket })
    }

    /// The address at which browsers find it; nothing for a Unix socket.
    #[must_use]
    pub fn origin(&self) -> Option<String> {
        match &self.socket {
            Socket::Tcp(socket) => {
                socket.local_addr().ok().map(|address| format!("http://{address}"))
            }
            Socket::Unix(..) => None,
        }
    }

    /// Whether it is a Unix socket, which its user alone can connect to.
    pub(crate) const fn is_unix(&self) -> bool {
        matches!(self.socket, Socket::Unix(..))
    }

    /// Serves connections for ever.
    pub(crate) async fn serve(self, router: Router) -> Result<(), Failure> {
        let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let failed = |error: std::io::Error| Failure::new(Code::System, error);
        match &self.socket {
            Socket::Tcp(socket) => {
                let socket = socket.try_clone().and_then(TcpListener::from_std).map_err(failed)?;
                loop {
                    match socket.accept().await {
                        Ok((stream, _)) => {
                            let _ = stream.set_nodelay(true);
                            connection(stream, router.clone(), &places);
                        }
                        Err(_) => pause().await,
                    }
                }
            }
            Socket::Unix(socket, _) => {
                let own = nix::unistd::geteuid().as_raw();
                let socket = socket.try_clone().and_then(UnixListener::from_std).map_err(failed)?;
                loop {
                    match socket.accept().await {
                        // The mode of the socket keeps others out, too.
                        Ok((stream, _)) => {
                            if stream.peer_cred().is_ok_and(|peer| peer.uid() == own) {
                                connection(stream, router.clone(), &places);
                            }
                        }
                        Err(_) => pause().await,
                    }
                }
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Socket::Unix(_, path) = &self.socket {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Without descriptors, `accept` fails again at once.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(50)).await;
}

/// A socket for its user alone. One that a server before left is replaced.
fn unix(path: &Path) -> std::io::Result<std::os::unix::net::UnixListener> {
    use std::os::unix::net::{UnixListener, UnixStream};
    let socket = match UnixListener::bind(path) {
        Err(error)
            if error.kind() == std::io::ErrorKind::AddrInUse
                // What is no socket is not ours to replace.
                && std::fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket())
                && UnixStream::connect(path)
                    .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused) =>
        {
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        other => other?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(socket)
}

/// Serves one connection, if there is a place for it; it is closed otherwise.
fn connection<S>(stream: S, router: Router, places: &Arc<Semaphore>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Ok(place) = Arc::clone(places).try_acquire_owned() else { return };
    tokio::spawn(async move {
        let _place = place;
        let mut http = hyper::server::conn::http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIME)
            .max_buf_size(HEAD_BYTES_MAX)
            .half_close(false);
        let io = TokioIo::new(Timed { stream, patience: None });
        let _ = http.serve_connection(io, TowerToHyperService::new(router)).await;
    });
}

/// A connection that fails when its peer takes nothing for [`WRITE_TIME`].
struct Timed<S> {
    stream: S,
    /// Set while something can't be written.
    patience: Option<Pin<Box<Sleep>>>,
}

impl<S> Timed<S> {
    fn watched<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<std::io::Result<T>>,
    ) -> Poll<std::io::Result<T>> {
        if result.is_ready() {
            self.patience = None;
            return result;
        }
        let patience =
            self.patience.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + WRITE_TIME)));
        match patience.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(std::io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Timed<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, room)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Timed<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watched(context, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        this.watched(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_flush(context);
        this.watched(context, result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_shutdown(context);
        this.watched(context, result)
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Timed};
    use crate::limits::WRITE_TIME;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_nothing_is_dropped_and_a_slow_one_is_not() {
        let (near, mut far) = tokio::io::duplex(16);
        let mut timed = Timed { stream: near, patience: None };
        let slow = tokio::spawn(async move {
            let mut room = [0; 16];
            for _ in 0..4 {
                tokio::time::sleep(WRITE_TIME * 3 / 4).await;
                assert!(far.read_exact(&mut room).await.is_ok());
            }
            far
        });
        assert!(timed.write_all(&[0; 80]).await.is_ok());
        let far = slow.await;
        let began = Instant::now();
        let kind = timed.write_all(&[0; 80]).await.err().map(|error| error.kind());
        assert_eq!(kind, Some(std::io::ErrorKind::TimedOut));
        assert!(began.elapsed() >= WRITE_TIME && far.is_ok());
    }

    #[test]
    fn only_loopback_addresses_and_unix_sockets_are_places() {
        for good in ["127.0.0.1:0", "127.3.2.1:80", "[::1]:8080", "localhost:8080", "unix:/x"] {
            assert!(good.parse::<Place>().is_ok(), "{good}");
        }
        for bad in ["0.0.0.0:80", "[::]:80", "192.168.0.1:80", "80", "evil.example:80", "unix:", ""]
        {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
        let refusal = "0.0.0.0:8080".parse::<Place>().err();
        assert!(refusal.is_some_and(|text| text.contains("ssh -L 8080:127.0.0.1:8080")));
    }
}
