//! Which nodes of a test bed have a slow way, and how a process that did not make it asks for one.
//!
//! A process must carry what is late: the one that has made the test bed. It listens at a Unix
//! socket in the test bed's directory. An order is a line, the node's name and the microseconds;
//! the answer is what went wrong, or nothing.

use crate::Node;
use crate::slow::SlowWay;
use anyhow::{Context, bail};
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// In the directory of a test bed: where orders are taken.
const SOCKET: &str = "orders";

/// How long an order, or an answer to one, may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The most bytes of an order.
const ORDER_BYTES_MAX: u64 = 100;

/// The ways that are slow, by the node's name.
#[derive(Debug)]
pub(crate) struct Ways {
    switch: String,
    slow: Mutex<BTreeMap<String, SlowWay>>,
}

impl Ways {
    pub(crate) fn of(switch: &str) -> Self {
        Self { switch: switch.to_owned(), slow: Mutex::default() }
    }

    /// From now on the way to a node takes so much longer.
    pub(crate) fn delay(&self, node: &Node, late: Duration) -> anyhow::Result<()> {
        let mut slow = self.slow();
        // One way at a time.
        drop(slow.remove(node.name()));
        if !late.is_zero() {
            slow.insert(node.name().to_owned(), SlowWay::to(&self.switch, node, late)?);
        }
        Ok(())
    }

    pub(crate) fn clear(&self) {
        self.slow().clear();
    }

    fn slow(&self) -> MutexGuard<'_, BTreeMap<String, SlowWay>> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries out orders of other processes, in a thread of its own.
pub(crate) fn take_orders(
    ways: Arc<Ways>,
    nodes: Vec<Node>,
    directory: &Path,
) -> anyhow::Result<()> {
    let path = directory.join(SOCKET);
    let listener = UnixListener::bind(&path);
    let listener = listener.with_context(|| format!("cannot listen at {}", path.display()))?;
    let thread = thread::Builder::new().name("orders".into());
    let orders = move || {
        for stream in listener.incoming().flatten() {
            // The client may have gone.
            let _ = answer(&stream, &ways, &nodes);
        }
    };
    thread.spawn(orders).context("cannot start a thread")?;
    Ok(())
}

fn answer(mut stream: &UnixStream, ways: &Ways, nodes: &[Node]) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = String::new();
    BufReader::new(stream.take(ORDER_BYTES_MAX)).read_line(&mut line)?;
    match carry_out(&line, ways, nodes) {
        Ok(()) => Ok(()),
        Err(error) => write!(stream, "{error:#}"),
    }
}

fn carry_out(line: &str, ways: &Ways, nodes: &[Node]) -> anyhow::Result<()> {
    let (name, late) = line.trim().split_once(' ').context("that is no order")?;
    let late = Duration::from_micros(late.parse().context("that is no time")?);
    let node = nodes.iter().find(|node| node.name() == name);
    ways.delay(node.with_context(|| format!("there is no node {name}"))?, late)
}

/// Asks the process that has made the test bed to make a way slow.
pub(crate) fn ask(directory: &Path, node: &Node, late: Duration) -> anyhow::Result<()> {
    let path = directory.join(SOCKET);
    let asked = (|| {
        let mut stream = UnixStream::connect(&path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        writeln!(stream, "{} {}", node.name(), late.as_micros())?;
        stream.shutdown(Shutdown::Write)?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        io::Result::Ok(said)
    })();
    let said = asked.with_context(|| {
        format!("cannot ask the `testbed up` that made it, at {}", path.display())
    })?;
    match said.is_empty() {
        true => Ok(()),
        false => bail!("{said}"),
    }
}
