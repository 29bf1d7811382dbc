//! A browser's part of HTTP: as much as the page of `tutti web` and its events need.

use anyhow::{Context, bail, ensure};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tutti_client::scratch::ScratchInstance;
use tutti_node::executable::own_program;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// A running `tutti web`, with a session. Ended when dropped.
pub(super) struct Web {
    child: Child,
    address: String,
    cookie: String,
    /// The path of the page, without a slash at its end.
    pub(super) path: String,
}

/// What came for a request.
pub(super) struct Reply {
    head: String,
    pub(super) body: Vec<u8>,
}

impl Web {
    /// Starts one for an instance.
    ///
    /// # Errors
    /// If it does not start, or gives no session.
    pub(super) fn start(own: &ScratchInstance) -> anyhow::Result<Self> {
        let mut command = Command::new(own_program()?);
        command.arg("web").env("TUTTI_DIR", own.directory());
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            BufReader::new(output).read_line(&mut line)?;
        }
        let mut web =
            Self { child, address: String::new(), cookie: String::new(), path: String::new() };
        let parts = line.trim().strip_prefix("http://").and_then(|url| url.split_once("/?"));
        let (address, token) = parts.with_context(|| format!("tutti web printed {line:?}"))?;
        web.address = address.to_owned();
        let first = web.connect()?.get(&format!("/?{token}"))?;
        let mut parts = first.header("set-cookie").split("; ").map(str::to_owned);
        web.cookie = parts.next().unwrap_or_default();
        let path = parts.next().context("tutti web gives no session")?;
        web.path = path.trim_start_matches("Path=").trim_end_matches('/').to_owned();
        Ok(web)
    }

    /// The process.
    pub(super) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// A connection, on which requests follow each other.
    ///
    /// # Errors
    /// If it can't be made.
    pub(super) fn connect(&self) -> anyhow::Result<Connection<'_>> {
        let stream = TcpStream::connect(&self.address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { web: self, stream: BufReader::new(stream) })
    }

    /// Begins to read events; what follows the head of the answer is still to be read.
    ///
    /// # Errors
    /// If the server refuses.
    pub(super) fn events(&self) -> anyhow::Result<BufReader<TcpStream>> {
        let mut connection = self.connect()?;
        connection.ask(&format!("{}/v1/events", self.path))?;
        connection.head()?;
        Ok(connection.stream)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A connection of a browser.
pub(super) struct Connection<'a> {
    web: &'a Web,
    stream: BufReader<TcpStream>,
}

impl Connection<'_> {
    fn ask(&mut self, path: &str) -> anyhow::Result<()> {
        let Web { address, cookie, .. } = self.web;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nCookie: {cookie}\r\n\r\n");
        Ok(self.stream.get_mut().write_all(request.as_bytes())?)
    }

    fn head(&mut self) -> anyhow::Result<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            ensure!(self.stream.read_line(&mut head)? > 0, "the server closed the connection");
        }
        match head.split(' ').nth(1) {
            Some("200") => Ok(head),
            _ => bail!("the server answered {:?}", head.lines().next().unwrap_or_default()),
        }
    }

    /// One request, and its whole answer.
    ///
    /// # Errors
    /// If there is no good answer.
    pub(super) fn get(&mut self, path: &str) -> anyhow::Result<Reply> {
        self.ask(path)?;
        let mut reply = Reply { head: self.head()?, body: Vec::new() };
        let length = reply.header("content-length").parse().context("an answer has no length")?;
        reply.body.resize(length, 0);
        self.stream.read_exact(&mut reply.body)?;
        Ok(reply)
    }
}

impl Reply {
    fn header(&self, name: &str) -> &str {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let mut values = lines.filter(|(it, _)| it.eq_ignore_ascii_case(name));
        values.next().map_or("", |(_, value)| value)
    }

    /// Bytes of head and body.
    pub(super) fn bytes(&self) -> usize {
        self.head.len() + self.body.len()
    }
}
