//! How fast bytes go one way over loopback, through a secure stream and through plain TCP, by turns
//! in one run: `cargo run --profile dist -p tutti-secure --example throughput`.
//!
//! Sender and receiver are a thread each; with fewer than two idle processors the figures say
//! little.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::thread;
use std::time::Instant;
use tutti_secure::{Authority, Clock, Credentials, Endpoint, Key, Name, Role, SecureStream};

const BYTES: usize = 1 << 30;
const ROUNDS: usize = 5;
/// What Tutti's connections read and write at once when there is much.
const PIECE: usize = 256 << 10;

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("throughput: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), Failure> {
    let endpoint = endpoint()?;
    let (mut secure, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(rate(sockets()?)?);
        let (one, other) = sockets()?;
        secure.push(rate((blocking(endpoint.connect(one)?)?, blocking(endpoint.accept(other)?)?))?);
    }
    let (secure, plain) = (median(secure), median(plain));
    println!("secure stream  {secure:6.0} MB/s");
    println!("plain TCP      {plain:6.0} MB/s");
    println!(
        "ratio          {:6.2}  (medians of {ROUNDS} rounds of {} MiB)",
        secure / plain,
        BYTES >> 20
    );
    Ok(())
}

/// Megabytes a second from the first end to the second.
fn rate<S: Read + Write + Send>(ends: (S, S)) -> Result<f64, Failure> {
    let (mut sender, mut receiver) = ends;
    thread::scope(|scope| {
        // One byte first: a handshake is not what is measured.
        let sending = scope.spawn(move || -> io::Result<Instant> {
            sender.write_all(&[0])?;
            sender.read_exact(&mut [0])?;
            let begin = Instant::now();
            let piece = vec![1; PIECE];
            for _ in 0..BYTES / PIECE {
                sender.write_all(&piece)?;
            }
            sender.read_exact(&mut [0])?;
            Ok(begin)
        });
        receiver.read_exact(&mut [0])?;
        receiver.write_all(&[0])?;
        let (mut room, mut total) = (vec![0; PIECE], 0);
        while total < BYTES {
            match receiver.read(&mut room)? {
                0 => return Err("the connection ended early".into()),
                count => total += count,
            }
        }
        let end = Instant::now();
        receiver.write_all(&[0])?;
        let begin = sending.join().map_err(|_| "the sender panicked")??;
        Ok(BYTES as f64 / 1e6 / (end - begin).as_secs_f64())
    })
}

fn endpoint() -> Result<Endpoint, Failure> {
    let clock = Clock::system();
    let authority = Authority::create(&Name::new("throughput")?, clock.now())?;
    let key = Key::generate()?;
    let certificate =
        authority.sign(&key.request()?, Role::Node, &Name::new("node")?, clock.now())?;
    let credentials = Credentials::new(key, &certificate, authority.certificate())?;
    Ok(Endpoint::new(&credentials, 1, clock)?)
}

fn sockets() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let one = TcpStream::connect(listener.local_addr()?)?;
    Ok((one, listener.accept()?.0))
}

fn blocking(mut stream: SecureStream) -> io::Result<SecureStream> {
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
