"""Notice before the turn of a job ends.

    import tutti.vacate

    notices = tutti.vacate.register()
    while work_is_left():
        if notices and notices.wait(0) == tutti.vacate.NOTICE:
            release()
            notices.ready()
            while notices.wait() != tutti.vacate.RESUME:
                pass
            acquire()
        step()

or with functions that a thread calls:

    with tutti.vacate.start(release, acquire):
        work()

A program that can't be changed runs below this module, which runs commands at notices:

    tutti run --vacate 2s python3 -m tutti.vacate --release CMD --acquire CMD -- ./program

Submit the job with `--vacate TIME`. Outside of such a job `register` gives None, and `start` a
context that does nothing. A job is never kept running for this: a program that is not ready when
the turn ends is suspended with what it holds.

Only the standard library is needed, of Python 3.9 or later.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Callable, Iterator, Optional

__all__ = ["NOTICE", "RESUME", "Notices", "Refused", "register", "start"]

#: The turn ends soon: release, then call `Notices.ready`.
NOTICE = "vacate"
#: The job has its next turn, or keeps this one.
RESUME = "resume"

_PAUSE_FIRST = 0.01
_PAUSE_LONGEST = 1.0
_ANSWER = 1.0


class Refused(OSError):
    """The agent of the node does not take this process."""


class _Stopped(Exception):
    """The thread is to end."""


class Notices:
    """The registration of this process. A lost connection is made anew by `wait`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: Optional[socket.socket] = None
        self._received = b""
        self._registered = False
        self._vacated = False
        self._number = 0
        self._pause = _PAUSE_FIRST
        self._retry_at = 0.0
        self._stop: Optional[int] = None
        #: When the turn ends, as the latest notice has it, by `time.monotonic`.
        self.until = 0.0
        #: How long before the end of a turn a notice comes, at most, in seconds.
        self.lead = 0.0

    def fileno(self) -> int:
        """The descriptor of the connection, for `select`; -1: there is none now."""
        return -1 if self._socket is None else self._socket.fileno()

    def wait(self, timeout: Optional[float] = None) -> Optional[str]:
        """Waits for NOTICE or RESUME; None: there was none within so many seconds. 0: looks only.

        A program that has vacated gets RESUME also when a lost connection was made anew.
        """
        return self._wait(timeout, first=False)

    def ready(self) -> None:
        """Answers the latest notice: the program has released all."""
        if self._vacated:
            self._say(b"ready %d\n" % self._number)

    def close(self) -> None:
        """Ends the registration."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _wait(self, timeout: Optional[float], first: bool) -> Optional[str]:
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            event = self._take(first)
            if event is not None or (first and self._registered):
                return event
            now = time.monotonic()
            if self._socket is None and self._retry_at <= now:
                self._reach()
            left = None if until is None else max(0.0, until - now)
            if self._socket is None:
                pause = max(0.0, self._retry_at - now)
                left = pause if left is None else min(left, pause)
            watched = [it for it in (self._socket, self._stop) if it is not None]
            readable = select.select(watched, [], [], left)[0]
            if self._stop is not None and self._stop in readable:
                raise _Stopped
            if self._socket is not None and self._socket in readable:
                self._receive()
            elif until is not None and time.monotonic() >= until:
                return None

    def _reach(self) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        try:
            self._socket.connect(self._path)
        except OSError:
            self._lose()
        else:
            self._say(b"register 1\n")

    def _say(self, line: bytes) -> None:
        try:
            if self._socket is not None and self._socket.send(line) != len(line):
                self._lose()
        except OSError:
            self._lose()

    def _receive(self) -> None:
        assert self._socket is not None
        try:
            received = self._socket.recv(4096)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            received = b""
        self._received += received
        if not received:
            self._lose()

    def _lose(self) -> None:
        self.close()
        self._received = b""
        self._registered = False
        self._retry_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, _PAUSE_LONGEST)

    def _take(self, first: bool) -> Optional[str]:
        """Takes out lines up to the first event."""
        while b"\n" in self._received:
            line, self._received = self._received.split(b"\n", 1)
            word, _, rest = line.decode("ascii", "replace").partition(" ")
            event = None
            if word == "error":
                self._pause = _PAUSE_LONGEST
                self._lose()
                if first:
                    raise Refused(rest)
                return None
            if word == "registered":
                self.lead = int(rest.split()[1]) / 1e9
                self._registered, self._pause = True, _PAUSE_FIRST
                event = RESUME if self._vacated else None
                self._vacated = False
            elif word == "vacate":
                number, until = rest.split()
                self._number, self.until = int(number), int(until) / 1e9
                self._vacated, event = True, NOTICE
            elif word == "resume":
                event = RESUME if self._vacated else None
                self._vacated = False
            if event is not None or (first and self._registered):
                return event
        return None


def register() -> Optional[Notices]:
    """Registers this process; None outside of a job that was submitted with `--vacate`.

    Raises `Refused` if the agent of the node does not take it.
    """
    path = os.environ.get("TUTTI_VACATE")
    if not path:
        return None
    notices = Notices(path)
    try:
        notices._wait(_ANSWER, first=True)
    except Refused:
        notices.close()
        raise
    return notices


@contextlib.contextmanager
def start(
    release: Optional[Callable[[], object]] = None,
    acquire: Optional[Callable[[], object]] = None,
) -> Iterator[Optional[Notices]]:
    """Registers this process while the context lasts.

    A thread calls `release` at each notice, answers it, and calls `acquire` at each resumption. What
    these raise ends the thread, as in any thread.
    """
    notices = register()
    if notices is None:
        yield None
        return
    stop, stopper = os.pipe()
    notices._stop = stop

    def follow() -> None:
        while True:
            try:
                event = notices.wait()
            except _Stopped:
                return
            if event == NOTICE:
                if release is not None:
                    release()
                notices.ready()
            elif event == RESUME and acquire is not None:
                acquire()

    thread = threading.Thread(target=follow, name="tutti-vacate", daemon=True)
    thread.start()
    try:
        yield notices
    finally:
        os.close(stopper)
        thread.join()
        os.close(stop)
        notices.close()


def _main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m tutti.vacate",
        description="Runs a program, and commands of a shell when it has to vacate. They find the number of its "
        "process in PROGRAM_PID.",
    )
    parser.add_argument("--release", metavar="CMD", help="at each notice; then the job is ready")
    parser.add_argument("--acquire", metavar="CMD", help="when the job has its next turn")
    parser.add_argument("program", nargs="+", help="the program and its arguments, behind --")
    options = parser.parse_args()
    try:
        program = subprocess.Popen(options.program)
    except OSError as error:
        print(f"{options.program[0]}: {error.strerror}", file=sys.stderr)
        return 127 if isinstance(error, FileNotFoundError) else 126
    # Signals for the job reach the program as well: it decides.
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    environment = dict(os.environ, PROGRAM_PID=str(program.pid))

    def run(command: Optional[str]) -> None:
        if command is not None:
            subprocess.call(command, shell=True, env=environment, stdin=subprocess.DEVNULL)

    with start(lambda: run(options.release), lambda: run(options.acquire)):
        code = program.wait()
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(_main())
