#!/usr/bin/env python3
"""The event-driven strategy of Jump-StarT: a job is accepted if it can meet its deadline.

Each event has its method, as in the thesis (section 2.5): a *request* is accepted or declined;
*assign* chooses processors; the *end of a thread* and *timers* revise the schedule. Parameters that
only this strategy knows come with the job:

- `--policy-arg deadline=SECONDS`: done at most so long after its submission (also `--deadline`);
- `--policy-arg cpu=SECONDS`: processor time that each task needs (else the time limit, `-t`).

A job without a deadline waits until the jobs with one leave it room. The latest moment at which a
job with a deadline can start is kept as a timer; at that moment jobs without a deadline are
preempted for it, and restored when there is room again.

    tutti sim trace.swf --deadlines factor:4 --policy ./deadlines.py,rows=1
"""

import heapq
import os
import sys
from typing import List, Optional

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from tutti import policy  # noqa: E402


def seconds(job: policy.Job, name: str) -> Optional[int]:
    """A parameter of a job that is a number of seconds, in nanoseconds."""
    try:
        return int(float(job.args[name]) * policy.SECOND)
    except (KeyError, ValueError, OverflowError):
        return None


class Terms:
    """What a job needs, and by when."""

    def __init__(self, job: policy.Job) -> None:
        within = seconds(job, "deadline")
        self.due = job.deadline_ns if within is None else job.since_ns + within
        self.cpu = seconds(job, "cpu") or job.time_limit_ns

    @property
    def latest(self) -> Optional[int]:
        """The latest moment at which the job can start."""
        return None if self.due is None or self.cpu is None else self.due - self.cpu


class Deadlines(policy.Policy):
    """See the module."""

    # ---------------------------------------------------------------- request

    def on_request(self, job: policy.Job) -> None:
        job.note = terms = Terms(job)
        if terms.due is None:
            return
        if terms.cpu is None:
            self.decline(job, "a job with a deadline needs a time limit (-t) or cpu=SECONDS")
        elif self.lateness() > 0:
            late = -(-self.lateness() // policy.SECOND)
            self.decline(job, f"a deadline would be missed by {late} s")
        elif terms.latest is not None:
            self.timer(terms.latest - self.now_ns, str(job.number))

    def promised(self) -> List[policy.Job]:
        """The accepted jobs with deadlines, the most urgent first."""
        jobs = [*self.waiting.values(), *self.running.values()]
        due = [job for job in jobs if job.note is not None and job.note.due is not None]
        return sorted(due, key=lambda job: (job.note.latest, job.number))

    def lateness(self) -> int:
        """By how much the worst job would be late if all start in the order of urgency."""
        free, ends = self.processors, []
        for job in self.promised():
            if job.started_ns is not None:
                free -= job.processors
                heapq.heappush(ends, (job.started_ns + job.note.cpu, job.processors))
        at, worst = self.now_ns, 0
        for job in self.promised():
            if job.started_ns is not None:
                continue
            while free < job.processors and ends:
                end, processors = heapq.heappop(ends)
                at, free = max(at, end), free + processors
            worst = max(worst, at - job.note.latest)
            free -= job.processors
            heapq.heappush(ends, (at + job.note.cpu, job.processors))
        return worst

    # ---------------------------------------------------------------- assign

    def decide(self) -> None:
        for job in self.promised():
            if job.number in self.waiting and not self.start(job):
                return
        for job in list(self.running.values()):
            if job.preempted and max(self.rows.values(), default=0) >= job.processors:
                self.restore(job)
                return
        for job in self.line:
            if not self.start(job):
                return

    # ---------------------------------------------------------------- ends of threads, timers

    def on_timer(self, tag: str) -> None:
        job = self.waiting.get(int(tag))
        if job is None or self.row_for(job.processors) is not None:
            return
        lacks = job.processors - max(self.rows.values(), default=0)
        for other in reversed(list(self.running.values())):
            if lacks <= 0:
                return
            if not other.preempted and (other.note is None or other.note.due is None):
                self.preempt(other)
                lacks -= other.processors


if __name__ == "__main__":
    policy.run(Deadlines())
