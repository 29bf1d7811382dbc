"""Submit and follow jobs of Tutti from Python.

    import tutti

    job = tutti.submit(["./solver", "input.dat"], tasks=4, time="2h")
    for line in job.follow():
        print(line, end="")
    ended = job.wait()
    print(ended.exit_code, ended.reason)

The functions start the command `tutti`, so they have the rights of their user and need no server, and
they work wherever the command does: on a laptop, on a node of a cluster, and within a job. Only the
standard library is needed, of Python 3.9 or later.

Bad input, and all that the command refuses, raises `TuttiError`, with the code that `tutti explain`
knows.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import re
import subprocess
import tempfile
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Union

__all__ = [
    "Client",
    "Event",
    "Job",
    "JobInfo",
    "NodeInfo",
    "TuttiError",
    "Usage",
    "cancel",
    "events",
    "explain",
    "history",
    "hold",
    "job",
    "jobs",
    "nodes",
    "release",
    "resume",
    "run",
    "show",
    "submit",
    "suspend",
    "wait",
]

#: A time: seconds, or as `tutti` takes it, such as "90s", "10m" or "1:30:00".
Time = Union[int, float, str, datetime.timedelta]
#: A size: bytes, or as `tutti` takes it, such as "512M" or "4G".
Size = Union[int, str]
#: A job, by its number, by its name, or as `submit` gave it.
JobLike = Union["Job", int, str]

# `tutti` ends with it when it could not do what was asked (docs/reference/exit-codes.md).
_REFUSED = 125
_CODE = re.compile(r"\[(T\d{3})\]")


class TuttiError(Exception):
    """What was asked for was not done; nothing of it was."""

    #: The code of the error, such as "T021", which `tutti explain` explains; None if it has none.
    code: Optional[str]
    #: The exit code of the command; None if it could not be started.
    status: Optional[int]

    def __init__(self, message: str, code: Optional[str] = None, status: Optional[int] = None):
        super().__init__(message)
        self.code = code
        self.status = status


@dataclasses.dataclass(frozen=True)
class Usage:
    """What a job used. A value is a lower bound if its `..._whole` is false."""

    cpu_user_us: int
    cpu_system_us: int
    cpu_whole: bool
    memory_peak_bytes: Optional[int]
    memory_whole: bool
    read_bytes: Optional[int]
    written_bytes: Optional[int]
    io_whole: bool
    processes: int
    processes_peak: int
    processes_whole: bool
    switches: int


@dataclasses.dataclass(frozen=True)
class JobInfo:
    """A job as it is, or as it ended: the fields of docs/reference/json.md.

    Fields that the list in question does not have are None; `raw` has all, as they were printed.
    """

    job: int
    name: str
    user: str
    state: str
    reason: str
    tasks: int
    processors: int
    # `class` is a word of Python.
    job_class: str
    placement: List[str]
    raw: Dict[str, Any] = dataclasses.field(repr=False, compare=False)
    former_class: Optional[str] = None
    code: Optional[str] = None
    detail: Optional[str] = None
    suspended: Optional[List[str]] = None
    row: Optional[int] = None
    rows: Optional[int] = None
    share_percent: Optional[int] = None
    age_s: Optional[int] = None
    service_ms: Optional[int] = None
    waited_ms: Optional[int] = None
    suspended_ms: Optional[int] = None
    usage: Optional[Usage] = None
    deadline_s: Optional[int] = None
    at_risk_s: Optional[int] = None
    ends_s: Optional[int] = None
    cpu_ms: Optional[int] = None
    exit_code: Optional[int] = None
    submitted: Optional[bool] = None
    time_limit_ms: Optional[int] = None
    time_left_ms: Optional[int] = None
    queue: Optional[str] = None
    resources: Optional[List[str]] = None
    position: Optional[int] = None
    wait: Optional[str] = None
    behind: Optional[int] = None
    swapped_bytes: Optional[int] = None
    lent_processors: Optional[int] = None
    first: Optional[str] = None
    slots: Optional[int] = None
    nodes_asked: Optional[int] = None
    array: Optional[Dict[str, Any]] = None
    ending: Optional[str] = None
    accepted_ms: Optional[int] = None
    started_ms: Optional[int] = None
    ended_ms: Optional[int] = None
    details: Optional[Dict[str, Any]] = None
    front_end: Optional[str] = None
    processors_in_use: Optional[int] = None
    shares_devices_with: Optional[List[int]] = None
    used_on: Optional[List[Dict[str, Any]]] = None
    expected: Optional[Dict[str, Any]] = None
    environment: Optional[List[str]] = None
    steps: Optional[List[Dict[str, Any]]] = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it runs, and nothing will."""
        return self.state == "ended"

    @property
    def has_succeeded(self) -> bool:
        """Whether it has ended, and well."""
        return self.ending == "completed" or (self.has_ended and self.exit_code == 0)


@dataclasses.dataclass(frozen=True)
class NodeInfo:
    """A node: the main fields of `tutti nodes --json`; `raw` has all."""

    name: str
    state: str
    processors: int
    processors_used: int
    memory_bytes: int
    jobs: int
    drained: Optional[str]
    sets: List[str]
    raw: Dict[str, Any] = dataclasses.field(repr=False, compare=False)


@dataclasses.dataclass(frozen=True)
class Event:
    """Something that happened: docs/reference/events.md has the words and their fields."""

    #: Its place in the stream: `events(since=number)` goes on behind it.
    number: int
    #: Its word, such as "job_ended".
    event: str
    #: When, by the clock of the head.
    at: datetime.datetime
    #: The job that it is about, its name and its user, if it is about one.
    job: Optional[int]
    name: Optional[str]
    user: Optional[str]
    #: All its fields.
    fields: Dict[str, Any] = dataclasses.field(repr=False, compare=False)


class Job:
    """A job by its number, as `submit` returns it."""

    def __init__(self, client: "Client", number: int):
        self._client = client
        #: Its number.
        self.number = number

    def __repr__(self) -> str:
        return f"Job({self.number})"

    def __str__(self) -> str:
        return str(self.number)

    def __int__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.number == self.number

    def __hash__(self) -> int:
        return hash(self.number)

    def info(self) -> JobInfo:
        """The job as it is now, with what it was asked for, live or ended."""
        return self._client.show(self)

    def wait(self, timeout: Optional[float] = None) -> JobInfo:
        """Waits until it has ended, at most `timeout` seconds: then `TimeoutError` is raised and the
        job goes on."""
        return self._client.wait(self, timeout=timeout)

    def logs(
        self, *, rank: Optional[int] = None, error: bool = False, lines: Optional[int] = None
    ) -> str:
        """What it has written so far, of one rank or of all; with `lines` only the last ones."""
        return self._client.logs(self, rank=rank, error=error, lines=lines)

    def follow(self, *, rank: Optional[int] = None, error: bool = False) -> Iterator[str]:
        """The lines of its output, as they are written, until it has ended."""
        return self._client.follow(self, rank=rank, error=error)

    def events(self, *, follow: bool = False) -> Iterator[Event]:
        """What has happened to it; with `follow` also what will, until it has ended."""
        for event in self._client.events(job=self, follow=follow, since=0):
            yield event
            if follow and event.event == "job_ended":
                return

    def cancel(self, *, now: bool = False) -> None:
        """Ends it: SIGTERM, and SIGKILL after its grace; `now` kills at once."""
        self._client.cancel(self, now=now)

    def suspend(self) -> None:
        """Takes its turns until `resume`."""
        self._client.suspend(self)

    def resume(self) -> None:
        """Gives it turns again."""
        self._client.resume(self)

    def hold(self) -> None:
        """Keeps it out of the line until `release`."""
        self._client.hold(self)

    def release(self) -> None:
        """Puts it into the line again."""
        self._client.release(self)


class Client:
    """One way to reach an instance: which command is started, and with which environment.

    The functions of the module are those of `Client()`.
    """

    def __init__(self, program: str = "tutti", *, environment: Optional[Mapping[str, str]] = None):
        """`program` is the command, by name or path; `environment` replaces that of this process, for
        an instance of its own (`TUTTI_DIR`, `TUTTI_CLUSTER`)."""
        self._program = program
        self._environment = dict(environment) if environment is not None else None

    # What runs.

    def submit(
        self,
        command: Union[str, Sequence[Union[str, "os.PathLike[str]"]]],
        *,
        tasks: Optional[int] = None,
        processors: Optional[int] = None,
        memory: Optional[Size] = None,
        time: Optional[Time] = None,
        name: Optional[str] = None,
        directory: Optional[Union[str, "os.PathLike[str]"]] = None,
        node_count: Optional[int] = None,
        job_class: Optional[str] = None,
        queue: Optional[str] = None,
        resources: Sequence[str] = (),
        after: Union[JobLike, Sequence[JobLike], None] = None,
        begin: Union[str, datetime.datetime, None] = None,
        hold: bool = False,
        output: Optional[Union[str, "os.PathLike[str]"]] = None,
        error: Optional[Union[str, "os.PathLike[str]"]] = None,
        input: Optional[Union[str, "os.PathLike[str]"]] = None,
        environment: Optional[Mapping[str, str]] = None,
        options: Sequence[str] = (),
    ) -> Job:
        """Submits a job, and returns it once it is accepted.

        `command` is a program or a script with its arguments, started once for each task; a text is a
        line of a shell that runs once. `processors` and `memory` are for each task. `after` names jobs
        that must have ended well, or states more: "7:any". `environment` is added to that of this
        process. `options` are further options of `tutti submit`, word by word. Names of files are
        patterns, such as "out/%j-%r".
        """
        words = ["submit", "--parsable"]
        _add(words, "--tasks", tasks)
        _add(words, "--processors", processors)
        _add(words, "--memory", _size(memory))
        _add(words, "--time", _time(time))
        _add(words, "--name", name)
        _add(words, "--directory", directory)
        _add(words, "--node-count", node_count)
        _add(words, "--class", job_class)
        _add(words, "--queue", queue)
        for resource in resources:
            _add(words, "--resource", resource)
        _add(words, "--after", _after(after))
        if isinstance(begin, datetime.datetime):
            begin = begin.astimezone().strftime("%Y-%m-%dT%H:%M:%S")
        _add(words, "--begin", begin)
        if hold:
            words.append("--hold")
        _add(words, "--output", output)
        _add(words, "--error", error)
        _add(words, "--input", input)
        words.extend(options)
        if isinstance(command, str):
            _add(words, "--wrap", command)
        else:
            if not command:
                raise ValueError("an empty command: name a program")
            words.append("--")
            words.extend(os.fspath(word) for word in command)
        said = self._call(words, environment=environment)
        return Job(self, int(said.split()[0]))

    def run(
        self,
        command: Sequence[Union[str, "os.PathLike[str]"]],
        *,
        tasks: Optional[int] = None,
        options: Sequence[str] = (),
        input: Optional[str] = None,
        check: bool = True,
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a job in the foreground and returns its output and exit code, as `subprocess.run` does.

        With `check`, a job that fails raises `subprocess.CalledProcessError`. A job that is refused
        raises `TuttiError`.
        """
        words = ["run"]
        _add(words, "--tasks", tasks)
        words.extend(options)
        words.append("--")
        words.extend(os.fspath(word) for word in command)
        done = self._start(words, input=input)
        if done.returncode == _REFUSED and _CODE.search(done.stderr):
            raise _error(done.stderr, done.returncode)
        if check:
            done.check_returncode()
        return done

    # What there is.

    def job(self, number: int) -> Job:
        """A job by its number. Whether it exists is found out at the first use."""
        return Job(self, int(number))

    def jobs(self, *, ended: bool = False, user: Optional[str] = None) -> List[JobInfo]:
        """The jobs that have not ended; with `ended` also those that have and are still listed."""
        words = ["ps", "--json"]
        if ended:
            words.append("--all")
        _add(words, "--user", user)
        return [_job_info(it) for it in self._json(words)]

    def show(self, job: JobLike) -> JobInfo:
        """A job, live or ended, with `details` if it is yours."""
        return _job_info(self._json(["show", "--json", "--", _word(job)])[0])

    def history(
        self,
        *,
        user: Optional[str] = None,
        since: Union[str, datetime.datetime, None] = None,
        until: Union[str, datetime.datetime, None] = None,
        state: Optional[str] = None,
        last: Optional[int] = None,
    ) -> List[JobInfo]:
        """Jobs that have ended. `since` and `until` are as `tutti history` takes them ("2d",
        "2026-03-28T14:30"), or moments; `state` is how they ended, such as "failed"."""
        words = ["history", "--json"]
        _add(words, "--user", user)
        _add(words, "--since", _moment(since))
        _add(words, "--until", _moment(until))
        _add(words, "--state", state)
        _add(words, "--last", last)
        return [_job_info(it) for it in self._json(words)]

    def nodes(self) -> List[NodeInfo]:
        """The nodes."""
        names = [field.name for field in dataclasses.fields(NodeInfo) if field.name != "raw"]
        return [
            NodeInfo(**{name: it[name] for name in names}, raw=it)
            for it in self._json(["nodes", "--json"])
        ]

    def wait(self, job: JobLike, *, timeout: Optional[float] = None) -> JobInfo:
        """Waits until a job has ended; see `Job.wait`."""
        try:
            done = self._start(["wait", "--", _word(job)], timeout=timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"job {job} has not ended after {timeout} s") from None
        if done.returncode == _REFUSED and _CODE.search(done.stderr):
            # The job itself may have ended with this exit code.
            info = self._try_show(job)
            if info is None or not info.has_ended:
                raise _error(done.stderr, done.returncode)
            return info
        return self.show(job)

    def logs(
        self,
        job: JobLike,
        *,
        rank: Optional[int] = None,
        error: bool = False,
        lines: Optional[int] = None,
    ) -> str:
        """What a submitted job has written so far; see `Job.logs`."""
        return self._call(_logs(job, rank, error, lines))

    def follow(
        self, job: JobLike, *, rank: Optional[int] = None, error: bool = False
    ) -> Iterator[str]:
        """The lines of a job's output, as they are written; see `Job.follow`."""
        # Its exit code is that of the job.
        return self._lines(["logs", "--follow", *_logs(job, rank, error, None)[1:]], is_of_job=True)

    def events(
        self,
        *,
        follow: bool = False,
        since: Optional[int] = None,
        job: Optional[JobLike] = None,
        user: Optional[str] = None,
        only: Sequence[str] = (),
    ) -> Iterator[Event]:
        """What happens to jobs, nodes and settings, in order.

        Without `follow`, what is kept. With it, what happens from now on, or behind the event with the
        number `since`, until the loop is left. `only` are words of events.
        """
        words = ["events"]
        if follow:
            words.append("--follow")
        _add(words, "--since", since)
        _add(words, "--job", None if job is None else _word(job))
        _add(words, "--user", user)
        if only:
            _add(words, "--only", ",".join(only))
        for line in self._lines(words):
            fields = json.loads(line)
            at = datetime.datetime.fromtimestamp(fields["at_ms"] / 1000, datetime.timezone.utc)
            of = (fields.get("job"), fields.get("name"), fields.get("user"))
            yield Event(fields["number"], fields["event"], at, *of, fields=fields)

    def explain(self, code: str) -> str:
        """What an error's code means, such as "T021", and what to do."""
        return self._call(["explain", "--", code])

    # What changes.

    def cancel(self, *jobs: JobLike, now: bool = False) -> None:
        """Ends jobs: SIGTERM, and SIGKILL after their grace; `now` kills at once."""
        self._order(["cancel", "--now"] if now else ["cancel"], jobs)

    def suspend(self, *jobs: JobLike) -> None:
        """Takes the turns of jobs until `resume`."""
        self._order(["suspend"], jobs)

    def resume(self, *jobs: JobLike) -> None:
        """Gives jobs turns again."""
        self._order(["resume"], jobs)

    def hold(self, *jobs: JobLike) -> None:
        """Keeps waiting jobs out of the line until `release`."""
        self._order(["hold"], jobs)

    def release(self, *jobs: JobLike) -> None:
        """Puts held jobs into the line again."""
        self._order(["release"], jobs)

    # How the command is started.

    def _order(self, words: List[str], jobs: Sequence[JobLike]) -> None:
        if not jobs:
            raise ValueError("name at least one job")
        self._call([*words, "--", *map(_word, jobs)])

    def _try_show(self, job: JobLike) -> Optional[JobInfo]:
        try:
            return self.show(job)
        except TuttiError:
            return None

    def _json(self, words: Sequence[str]) -> Any:
        return json.loads(self._call(words))

    def _call(
        self, words: Sequence[str], *, environment: Optional[Mapping[str, str]] = None
    ) -> str:
        done = self._start(words, environment=environment)
        if done.returncode != 0:
            raise _error(done.stderr, done.returncode)
        return done.stdout

    def _start(
        self,
        words: Sequence[str],
        *,
        input: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> "subprocess.CompletedProcess[str]":
        source = {"stdin": subprocess.DEVNULL} if input is None else {"input": input}
        try:
            return subprocess.run(
                [self._program, *words],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                encoding="utf-8",
                errors="replace",
                env=self._with(environment),
                timeout=timeout,
                check=False,
                **source,
            )
        except OSError as error:
            raise _unstarted(self._program, error) from error

    def _lines(self, words: Sequence[str], *, is_of_job: bool = False) -> Iterator[str]:
        """The lines of the command's output. Leaving the loop ends the command."""
        try:
            process = subprocess.Popen(
                [self._program, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                # A pipe could fill up unread.
                stderr=(said := tempfile.TemporaryFile()),
                env=self._with(None),
            )
        except OSError as error:
            raise _unstarted(self._program, error) from error
        with process, said:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    yield line.decode("utf-8", "replace")
                status = process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()
            said.seek(0)
            text = said.read(64 * 1024).decode("utf-8", "replace")
            if status != 0 and (not is_of_job or (status == _REFUSED and _CODE.search(text))):
                raise _error(text, status)

    def _with(self, environment: Optional[Mapping[str, str]]) -> Optional[Dict[str, str]]:
        if environment is None:
            return self._environment
        base = self._environment if self._environment is not None else dict(os.environ)
        return {**base, **environment}


def _unstarted(program: str, error: OSError) -> TuttiError:
    if isinstance(error, FileNotFoundError):
        return TuttiError(
            f"there is no command {program}: install Tutti, or name its path: Client('/path/to/tutti')"
        )
    return TuttiError(f"cannot start {program}: {error.strerror or error}")


def _error(text: str, status: int) -> TuttiError:
    lines = [line for line in text.strip().splitlines() if line]
    code = _CODE.search(text)
    message = "\n".join(line[7:] if line.startswith("tutti: ") else line for line in lines)
    return TuttiError(
        message or f"tutti ended with exit code {status}", code and code.group(1), status
    )


def _add(words: List[str], option: str, value: object) -> None:
    if value is not None:
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        # In one word, so that a value that begins with a hyphen is a value.
        words.append(f"{option}={value}")


def _word(job: JobLike) -> str:
    return str(job.number) if isinstance(job, Job) else str(job)


def _after(after: Union[JobLike, Sequence[JobLike], None]) -> Optional[str]:
    if after is None:
        return None
    if isinstance(after, (Job, int, str)):
        return _word(after)
    return ",".join(map(_word, after)) or None


def _logs(job: JobLike, rank: Optional[int], error: bool, lines: Optional[int]) -> List[str]:
    words = ["logs"]
    _add(words, "--rank", rank)
    if error:
        words.append("--err")
    _add(words, "--lines", lines)
    return [*words, "--", _word(job)]


def _time(time: Optional[Time]) -> Optional[str]:
    if time is None or isinstance(time, str):
        return time
    seconds = time.total_seconds() if isinstance(time, datetime.timedelta) else float(time)
    if seconds != seconds or seconds <= 0 or seconds == float("inf"):
        raise ValueError(f"time is {time}: give seconds above 0")
    return f"{max(1, round(seconds * 1000))}ms"


def _size(size: Optional[Size]) -> Optional[str]:
    if isinstance(size, int):
        if size <= 0:
            raise ValueError(f"memory is {size}: give bytes above 0")
        return f"{size}B"
    return size


def _moment(moment: Union[str, datetime.datetime, None]) -> Optional[str]:
    if isinstance(moment, datetime.datetime):
        return moment.astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    return moment


_JOB_FIELDS = frozenset(field.name for field in dataclasses.fields(JobInfo)) - {
    "raw",
    "job_class",
    "usage",
}
_USAGE_FIELDS = tuple(field.name for field in dataclasses.fields(Usage))


def _job_info(it: Dict[str, Any]) -> JobInfo:
    usage = it.get("usage")
    known = {name: value for name, value in it.items() if name in _JOB_FIELDS}
    return JobInfo(
        **known,
        job_class=it["class"],
        usage=Usage(**{name: usage.get(name) for name in _USAGE_FIELDS}) if usage else None,
        raw=it,
    )


_default = Client()
submit = _default.submit
run = _default.run
job = _default.job
jobs = _default.jobs
show = _default.show
wait = _default.wait
history = _default.history
nodes = _default.nodes
events = _default.events
explain = _default.explain
cancel = _default.cancel
suspend = _default.suspend
resume = _default.resume
hold = _default.hold
release = _default.release
