//! HTTP as plain text over a socket: tests say each byte of a request.

use crate::harness::PATIENCE;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// An answer.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Reply {
    /// Reads an answer: as long as it says, or to the end of the connection.
    #[track_caller]
    pub(super) fn read(stream: &mut TcpStream) -> Self {
        let (mut bytes, mut room) = (Vec::new(), vec![0; 64 << 10]);
        while let Ok(count @ 1..) = stream.read(&mut room) {
            bytes.extend_from_slice(&room[..count]);
            let Some(end) = bytes.windows(4).position(|it| it == b"\r\n\r\n") else { continue };
            let length = Self::of(&bytes[..end + 4]).header("content-length").parse::<usize>();
            if length.is_ok_and(|length| bytes.len() >= end + 4 + length) {
                break;
            }
        }
        Self::of(&bytes)
    }

    /// The answer that these bytes are.
    #[track_caller]
    pub(super) fn of(bytes: &[u8]) -> Self {
        let end = bytes.windows(4).position(|it| it == b"\r\n\r\n");
        let end = end.unwrap_or_else(|| panic!("no head: {:?}", String::from_utf8_lossy(bytes)));
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
        let header = |line: &str| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_lowercase(), value.trim().to_owned())
        };
        let mut reply = Self { status, headers: lines.map(header).collect(), body: Vec::new() };
        let rest = &bytes[end + 4..];
        reply.body = match reply.header("transfer-encoding") {
            "chunked" => unchunked(rest),
            _ => rest.to_vec(),
        };
        reply
    }

    pub(super) fn header(&self, name: &str) -> &str {
        let found = self.headers.iter().find(|(it, _)| it == name);
        found.map_or("", |(_, value)| value)
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.text()))
    }

    #[track_caller]
    pub(super) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text());
        self
    }

    /// Fails unless it is an error with this status and code.
    #[track_caller]
    pub(super) fn fails(self, status: u16, code: &str) {
        let reply = self.expect(status);
        let error = reply.json();
        assert_eq!(error["code"], code, "{error}");
        assert_eq!(error["explain"], format!("tutti explain {code}"));
        assert!(error["error"].as_str().unwrap().len() > 10, "{error}");
    }
}

pub(super) fn dial(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends a request, each of whose lines is given, and reads the answer to its end.
#[track_caller]
pub(super) fn send(address: &str, request: &[u8]) -> Reply {
    let mut stream = dial(address);
    // A server that answers before it has read everything may close the connection.
    let _ = stream.write_all(request);
    Reply::read(&mut stream)
}

/// The content of chunks, as far as they are complete.
pub(super) fn unchunked(mut bytes: &[u8]) -> Vec<u8> {
    let mut content = Vec::new();
    while let Some(end) = bytes.windows(2).position(|it| it == b"\r\n") {
        let length = std::str::from_utf8(&bytes[..end]).ok();
        let length = length.and_then(|text| usize::from_str_radix(text, 16).ok()).unwrap();
        let Some(chunk) = bytes.get(end + 2..end + 2 + length).filter(|it| !it.is_empty()) else {
            break;
        };
        content.extend_from_slice(chunk);
        bytes = bytes.get(end + 4 + length..).unwrap_or_default();
    }
    content
}
