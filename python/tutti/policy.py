"""A scheduling policy of your own for Tutti, in Python.

    from tutti import policy

    class Mine(policy.Policy):
        def decide(self):
            for job in self.line:            # the jobs that wait, first come first
                if not self.start(job):      # wherever it fits
                    break

    if __name__ == "__main__":
        policy.run(Mine())

The same program runs in simulations (`tutti sim TRACE --policy ./mine.py`) and live
(`tutti params policy=./mine.py`). This file needs nothing but the standard library of Python 3.9 or
later, and nothing else of this package: it may be copied beside a policy.

Tutti sends a line of JSON for each round, and the policy answers it with one line. Here a round is:
the methods `on_...` for what is new, then `decide`. All orders that are given meanwhile are the
answer. `docs/reference/policy-protocol.md` describes the lines.

A policy may have a part on each node: another process of the same program, or of another one.

    class OnNode(policy.NodePolicy):
        def decide(self):
            for slot in self.slots:          # the youngest jobs first
                self.arrange(slot, sorted(slot.candidates, key=lambda it: -it.job))

    if __name__ == "__main__":
        policy.run(Mine(), OnNode())

(`tutti params policy=./mine.py policy_node=./mine.py`, `--policy ./mine.py,policy-node=./mine.py`.)

Print to standard error only: standard output belongs to the protocol, so `print` writes to
standard error while `run` is at work.
"""

from __future__ import annotations

import json
import sys
from typing import Any, BinaryIO, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

__all__ = ["Candidate", "Job", "Node", "NodePolicy", "Policy", "SECOND", "Slot", "run"]

#: A second, in the unit of all times here.
SECOND = 1_000_000_000

_PROTOCOL = 1

#: Orders in one answer, at most.
_ORDERS_MAX = 1000


class Job:
    """A job: in line until it has processors."""

    __slots__ = (
        "number", "user", "group", "class_name", "tasks", "processors", "processors_per_task",
        "memory_per_task_bytes", "time_limit_ns", "deadline_ns", "since_ns", "args", "started_ns",
        "row", "places", "preempted", "note",
    )

    def __init__(self, news: Mapping[str, Any]) -> None:
        get = news.get
        #: Its number.
        self.number: int = news["job"]
        #: Its user and group, as numbers.
        self.user: int = get("user", 0)
        self.group: int = get("group", 0)
        #: The name of its class.
        self.class_name: str = get("class", "")
        #: How many tasks, and how many processors they need together.
        self.tasks: int = get("tasks", 1)
        self.processors: int = news["processors"]
        self.processors_per_task: Optional[int] = get("processors_per_task")
        self.memory_per_task_bytes: Optional[int] = get("memory_per_task_bytes")
        #: How long it may run at most; `None`: no limit.
        self.time_limit_ns: Optional[int] = get("time_limit_ns")
        #: The moment of cluster time by which it is to be done.
        self.deadline_ns: Optional[int] = get("deadline_ns")
        #: Since when it waits.
        self.since_ns: int = get("since_ns", 0)
        #: Its own parameters (`--policy-arg NAME=VALUE`).
        self.args: Dict[str, str] = get("args", {})
        #: When it got processors; `None`: it waits.
        self.started_ns: Optional[int] = None
        #: The row in which it runs.
        self.row: Optional[int] = None
        #: Its processors by node, if the policy asked for `places`.
        self.places: List[Tuple[int, str]] = []
        #: Whether it was preempted.
        self.preempted = False
        #: For the policy's own use.
        self.note: Any = None

    def __repr__(self) -> str:
        return f"Job({self.number}, processors={self.processors}, row={self.row})"


class Node:
    """A node; known to a policy with `places`."""

    __slots__ = ("number", "name", "processors", "memory_bytes", "takes_jobs", "free")

    def __init__(self, news: Mapping[str, Any]) -> None:
        self.number: int = news["node"]
        self.name: str = news["name"]
        #: All its processors, such as `0-7`.
        self.processors: str = news["processors"]
        self.memory_bytes: int = news["memory_bytes"]
        self.takes_jobs: bool = news["takes_jobs"]
        #: What is free in rows that have jobs there; in other rows all of it is.
        self.free: Dict[int, str] = {int(row): free for row, free in news["free"].items()}

    def free_in(self, row: Optional[int]) -> List[int]:
        """The processors that are free in a row; `None`: in a new one."""
        if not self.takes_jobs:
            return []
        return expand(self.processors if row is None else self.free.get(row, self.processors))


class Policy:
    """A policy. Override `decide`, and what else it needs."""

    #: Whether it gets nodes and processors. A simulation is faster without.
    places = False

    def __init__(self) -> None:
        #: Now, in nanoseconds of cluster time.
        self.now_ns = 0
        #: `live` or `simulation`.
        self.mode = ""
        #: How many rows may take turns.
        self.rows_max = 1
        #: Free processors by row, oldest row first. `start` keeps it up to date.
        self.rows: Dict[int, int] = {}
        #: Free processors of a new row; `None`: there may be none.
        self.new_row: Optional[int] = None
        #: All processors that take jobs.
        self.processors = 0
        #: The jobs in line by number, first come first.
        self.waiting: Dict[int, Job] = {}
        #: The jobs that have been placed, by number.
        self.running: Dict[int, Job] = {}
        #: The nodes by number, with `places`.
        self.nodes: Dict[int, Node] = {}
        #: Whether orders count; otherwise the built-in policy goes on.
        self.in_charge = False
        #: Each as it is in a line, or as what becomes that.
        self._orders: List[Union[str, Dict[str, Any]]] = []
        #: Those for which the latest answer had no room.
        self._later: List[Union[str, Dict[str, Any]]] = []
        #: What is waited for, as it is in a line.
        self._until = ""

    # ------------------------------------------------------------------ what happens

    def on_hello(self, hello: Mapping[str, Any]) -> None:
        """The program was started."""

    def on_request(self, job: Job) -> None:
        """A job came into line."""

    def on_gone(self, job: Job) -> None:
        """A job left the line without a start: it was cancelled, held, or left."""

    def on_start(self, job: Job) -> None:
        """A job got processors."""

    def on_moved(self, job: Job) -> None:
        """A job is in another row, or was preempted or restored."""

    def on_tasks_ended(self, job: Job, count: int, ranks: List[int]) -> None:
        """Some tasks of a job have ended; the processors are free when all have."""

    def on_end(self, job: Job) -> None:
        """A job has ended, and its processors are free."""

    def on_timer(self, tag: str) -> None:
        """A timer has come."""

    def on_message(self, node: int, text: str) -> None:
        """The part on a node has sent a message."""

    def on_messages_lost(self, count: int) -> None:
        """So many messages did not come, since there were too many."""

    def on_refused(self, job: Optional[int], reason: str) -> None:
        """An order was not done."""

    def decide(self) -> None:
        """Gives orders, with all news taken in."""

    # ------------------------------------------------------------------ orders

    @property
    def line(self) -> List[Job]:
        """The jobs that wait, first come first; a copy."""
        return list(self.waiting.values())

    def row_for(self, processors: int) -> Union[int, str, None]:
        """The oldest row with so many free processors, `"new"`, or `None`."""
        for row, free in self.rows.items():
            if free >= processors:
                return row
        if self.new_row is not None and self.new_row >= processors:
            return "new"
        return None

    def start(
        self,
        job: Job,
        row: Union[int, str, None] = None,
        places: Iterable[Tuple[int, str]] = (),
    ) -> bool:
        """Starts a job: in a row (default: `row_for`), on processors of nodes (default: as the
        parameter `placement` says). `False`, and no order, if by the counts there is no room, or
        this answer has as many orders as it may: 1,000. Then the next round comes at once."""
        if len(self._orders) >= _ORDERS_MAX:
            return False
        if row is None:
            row = self.row_for(job.processors)
            if row is None:
                return False
        free = self.new_row if row == "new" else self.rows.get(row)  # type: ignore[arg-type]
        if job.number not in self.waiting or free is None or free < job.processors:
            return False
        given = [{"node": node, "processors": set_} for node, set_ in places]
        if given:
            self._orders.append(
                {"order": "start", "job": job.number, "row": row, "places": given}
            )
        elif row == "new":
            self._orders.append('{"order":"start","job":%d,"row":"new"}' % job.number)
        else:
            self._orders.append('{"order":"start","job":%d,"row":%d}' % (job.number, row))
        del self.waiting[job.number]
        job.started_ns = self.now_ns
        self.running[job.number] = job
        if row == "new":
            # Its number comes with the next round.
            self.new_row = None
        else:
            self.rows[row] = free - job.processors  # type: ignore[index]
        return True

    def decline(self, job: Job, reason: str) -> None:
        """Declines a job: it ends without a start, and its user gets the reason."""
        self.waiting.pop(job.number, None)
        self._orders.append({"order": "decline", "job": job.number, "reason": reason})

    def move(self, job: Job, before: Optional[Job] = None) -> None:
        """Puts a job before another in line, or before all, where users see it."""
        other = before.number if before is not None else None
        self._orders.append({"order": "move", "job": job.number, "before": other})

    def preempt(self, job: Job) -> None:
        """Suspends a job where it is, and gives its processors away."""
        self._orders.append({"order": "preempt", "job": job.number})

    def restore(self, job: Job) -> None:
        """Gives a preempted job its processors back."""
        self._orders.append({"order": "restore", "job": job.number})

    def set_class(self, job: Job, class_name: str) -> None:
        """Gives a job another class, and with it another share of the time."""
        self._orders.append({"order": "class", "job": job.number, "class": class_name})

    def leave(self, job: Job) -> None:
        """Leaves a job to the built-in policy."""
        self.waiting.pop(job.number, None)
        self._orders.append({"order": "leave", "job": job.number})

    def timer(self, after_ns: int, tag: str = "") -> None:
        """Has `on_timer` called after so long, at least a millisecond."""
        self._orders.append({"order": "timer", "after_ns": max(0, int(after_ns)), "tag": tag})

    def send(self, text: str, node: Optional[int] = None) -> None:
        """Sends a message of at most 1,024 bytes to the part on a node, or to all parts."""
        self._orders.append({"order": "message", "node": node, "text": text})

    def rest(self, free: Optional[int] = None, new_jobs: bool = False) -> None:
        """Nothing is to be decided until a row, or a new one, has `free` processors free. With
        `new_jobs`, jobs that come into line count, too: until one of them would fit.

        Until then there is no round for news of jobs: up to 500 of them come with the next one.
        When a job of the line is cancelled, a timer or a message comes, an order is refused, or
        nodes change, the next round comes at once. It holds for one round, and makes simulations
        faster.
        """
        waits = [] if free is None else ['"free":%d' % max(0, free)]
        if new_jobs:
            waits.append('"new_jobs":true')
        self._until = ',"until":{%s}' % ",".join(waits)

    def rest_until_room(self) -> None:
        """Nothing is to be decided until some job in line would fit, by the counts. For policies
        that leave no job in line that fits; see `rest`."""
        least = min((job.processors for job in self.waiting.values()), default=None)
        self.rest(free=least, new_jobs=True)

    def yield_charge(self) -> None:
        """Has the built-in policy go on until `take_charge`.

        Until then news come in lots: 100 at a time, or those of a minute.
        """
        self._orders.append({"order": "yield"})

    def take_charge(self) -> None:
        """Decides again."""
        self._orders.append({"order": "take_charge"})

    # ------------------------------------------------------------------ the protocol

    def _hello(self, hello: Mapping[str, Any]) -> Dict[str, Any]:
        if hello["protocol"] != _PROTOCOL:
            raise SystemExit(f"version {hello['protocol']} of the protocol is unknown")
        self.mode = hello["mode"]
        self.now_ns = hello["now_ns"]
        self.rows_max = hello["rows_max"]
        self.processors = hello["processors"]
        self.on_hello(hello)
        return {"protocol": _PROTOCOL, "places": self.places}

    def _round(self, round_: Mapping[str, Any]) -> bytes:
        self.now_ns = round_["now_ns"]
        self.in_charge = round_["in_charge"]
        self.rows_max = round_["rows_max"]
        self.new_row = round_["new_row"]
        self.rows = {row["row"]: row["free"] for row in round_["rows"]}
        self._orders, self._later = self._later, []
        self._until = ""
        for news in round_["events"]:
            # What comes most is looked for first.
            event = news["event"]
            if event == "request":
                job = Job(news)
                self.running.pop(job.number, None)
                self.waiting[job.number] = job
                self.on_request(job)
            elif event == "started":
                self._started(news)
            elif event == "ended":
                number = news["job"]
                ended = self.running.pop(number, None) or self.waiting.pop(number, None)
                if ended is not None:
                    self.on_end(ended)
            else:
                self._take(event, news)
        if not round_["more"]:
            self.decide()
        if len(self._orders) > _ORDERS_MAX:
            self._later = self._orders[_ORDERS_MAX:]
            del self._orders[_ORDERS_MAX:]
            self._until = ""
        return _answer(round_["round"], self._orders, self._until)

    def _take(self, event: str, news: Mapping[str, Any]) -> None:
        if event == "gone":
            gone = self.waiting.pop(news["job"], None) or self.running.pop(news["job"], None)
            if gone is not None:
                self.on_gone(gone)
        elif event == "moved":
            moved = self.running.get(news["job"])
            if moved is not None:
                moved.row, moved.preempted = news["row"], news["row"] is None
                self.on_moved(moved)
        elif event == "tasks_ended":
            of = self.running.get(news["job"])
            if of is not None:
                self.on_tasks_ended(of, news["count"], news["ranks"])
        elif event == "node":
            self.nodes[news["node"]] = Node(news)
        elif event == "node_gone":
            self.nodes.pop(news["node"], None)
        elif event == "timer":
            self.on_timer(news["tag"])
        elif event == "message":
            self.on_message(news["node"], news["text"])
        elif event == "messages_lost":
            self.on_messages_lost(news["count"])
        elif event == "refused":
            self._refused(news)

    def _started(self, news: Mapping[str, Any]) -> None:
        number = news["job"]
        job = self.waiting.pop(number, None) or self.running.get(number)
        if job is None:
            job = Job(news)
        self.running[number] = job
        job.row = row = news["row"]
        job.preempted = row is None
        if self.places:
            job.places = [(place["node"], place["processors"]) for place in news.get("places", ())]
        if job.started_ns is None:
            job.started_ns = self.now_ns
        self.on_start(job)

    def _refused(self, news: Mapping[str, Any]) -> None:
        number = news["job"]
        job = self.running.get(number) if number is not None else None
        if job is not None and job.row is None and not job.preempted:
            # The start that was refused: it waits still, in its place by arrival.
            del self.running[number]
            job.started_ns = None
            self.waiting[number] = job
            self.waiting = dict(sorted(self.waiting.items()))
        self.on_refused(number, news["reason"])


class Candidate:
    """A job that may run in a slot on a node."""

    __slots__ = ("job", "processors", "hold")

    def __init__(self, news: Mapping[str, Any]) -> None:
        #: The job's number.
        self.job: int = news["job"]
        #: Its processors there, such as `0-3`.
        self.processors: str = news["processors"]
        #: Whether its processors stay idle when it is absent; otherwise candidates below get them.
        self.hold: bool = news["if_absent"] == "hold"

    def __repr__(self) -> str:
        return f"Candidate({self.job}, {self.processors!r}, hold={self.hold})"


class Slot:
    """A slot of a node's timetable. Slots take turns, in their order."""

    __slots__ = ("row", "length_ns", "candidates")

    def __init__(self, news: Mapping[str, Any]) -> None:
        #: The row that it is of.
        self.row: int = news["row"]
        self.length_ns: int = news["length_ns"]
        #: The jobs that may run in it. Each one that is present runs, unless one before it has its
        #: processors.
        self.candidates: List[Candidate] = [Candidate(it) for it in news["candidates"]]


class NodePolicy:
    """The part of a policy on a node. Override `decide`, and what else it needs."""

    def __init__(self) -> None:
        #: Now, in nanoseconds of cluster time.
        self.now_ns = 0
        #: `live` or `simulation`.
        self.mode = ""
        #: The node, as number and name.
        self.node = 0
        self.name = ""
        #: The node's timetable, with what was arranged.
        self.slots: List[Slot] = []
        self._orders: List[Dict[str, Any]] = []

    # ------------------------------------------------------------------ what happens

    def on_hello(self, hello: Mapping[str, Any]) -> None:
        """The program was started."""

    def on_timetable(self) -> None:
        """The node has another timetable, in `slots`."""

    def on_tasks_ended(self, job: int, count: int, ranks: List[int]) -> None:
        """Some tasks of a job have ended on this node."""

    def on_message(self, text: str) -> None:
        """The program at the controller has sent a message."""

    def on_messages_lost(self, count: int) -> None:
        """So many messages did not come, since there were too many."""

    def on_timer(self, tag: str) -> None:
        """A timer has come."""

    def on_refused(self, reason: str) -> None:
        """An order was not done."""

    def decide(self) -> None:
        """Gives orders, with all news taken in."""

    # ------------------------------------------------------------------ orders

    def arrange(self, slot: Slot, candidates: Iterable[Candidate]) -> None:
        """Has these candidates of a slot come first on this node, in this order, with what they
        say of their empty time. Jobs of several nodes come before all others in any case. With no
        candidates, the built-in order holds again."""
        given = [
            {"job": it.job, "if_absent": "hold" if it.hold else "down"} for it in candidates
        ]
        self._orders.append({"order": "arrange", "row": slot.row, "candidates": given})

    def reset(self) -> None:
        """The built-in order holds again in all slots."""
        self._orders.append({"order": "arrange", "row": None, "candidates": []})

    def send(self, text: str) -> None:
        """Sends a message of at most 1,024 bytes to the program at the controller."""
        self._orders.append({"order": "message", "text": text})

    def timer(self, after_ns: int, tag: str = "") -> None:
        """Has `on_timer` called after so long, at least a millisecond."""
        self._orders.append({"order": "timer", "after_ns": max(0, int(after_ns)), "tag": tag})

    # ------------------------------------------------------------------ the protocol

    def _hello(self, hello: Mapping[str, Any]) -> Dict[str, Any]:
        if hello["protocol"] != _PROTOCOL:
            raise SystemExit(f"version {hello['protocol']} of the protocol is unknown")
        self.mode = hello["mode"]
        self.now_ns = hello["now_ns"]
        self.node, self.name = hello["node"], hello["name"]
        self.on_hello(hello)
        return {"protocol": _PROTOCOL}

    def _round(self, round_: Mapping[str, Any]) -> bytes:
        self.now_ns = round_["now_ns"]
        self._orders = []
        timetable = round_.get("timetable")
        if timetable is not None:
            self.slots = [Slot(slot) for slot in timetable["slots"]]
            self.on_timetable()
        for news in round_["events"]:
            self._take(news)
        self.decide()
        return _answer(round_["round"], self._orders)

    def _take(self, news: Mapping[str, Any]) -> None:
        event = news["event"]
        if event == "tasks_ended":
            self.on_tasks_ended(news["job"], news["count"], news["ranks"])
        elif event == "message":
            self.on_message(news["text"])
        elif event == "messages_lost":
            self.on_messages_lost(news["count"])
        elif event == "timer":
            self.on_timer(news["tag"])
        elif event == "refused":
            self.on_refused(news["reason"])


_encode = json.JSONEncoder(separators=(",", ":")).encode


def _answer(number: int, orders: Sequence[Union[str, Mapping[str, Any]]], until: str = "") -> bytes:
    """The line that answers a round."""
    # Most orders are starts, and text already.
    texts = [it if type(it) is str else _encode(it) for it in orders]
    return ('{"round":%d,"orders":[%s]%s}\n' % (number, ",".join(texts), until)).encode()


def expand(processors: str) -> List[int]:
    """The numbers of a list such as `0-3,8`."""
    numbers: List[int] = []
    for part in filter(None, processors.split(",")):
        first, _, last = part.partition("-")
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers


def run(
    policy: Union[Policy, NodePolicy],
    on_node: Optional[NodePolicy] = None,
    reads: Optional[BinaryIO] = None,
    writes: Optional[BinaryIO] = None,
) -> None:
    """Speaks with Tutti until it has nothing more to say. In a process that Tutti starts as a part
    on a node, `on_node` is at work, if it is given."""
    reads = sys.stdin.buffer if reads is None else reads
    writes = sys.stdout.buffer if writes is None else writes
    printed, sys.stdout = sys.stdout, sys.stderr
    # A line is one value, and no space stands before it.
    decode = json.JSONDecoder().raw_decode
    write, flush, next_round = writes.write, writes.flush, policy._round
    try:
        for line in reads:
            message, _ = decode(line.decode())
            if message["message"] == "round":
                write(next_round(message))
            else:
                if message.get("part") == "node" and on_node is not None:
                    policy = on_node
                    next_round = policy._round
                write(_encode(policy._hello(message)).encode() + b"\n")
            flush()
    finally:
        sys.stdout = printed
