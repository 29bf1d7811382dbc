#!/usr/bin/env python3
"""A lottery scheduler: the next job to start is drawn, with as many tickets as its user gave it.

A job has one ticket, or those of `--policy-arg tickets=N`. Whenever processors are free, one of the
jobs in line that fit is drawn, until none fits. So a wide job may wait long, but none that fits is
kept waiting by order alone.

    tutti sim trace.swf --policy ./lottery.py
    tutti params policy=./lottery.py
    tutti run -n 4 --policy-arg tickets=10 ./solver
"""

import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from tutti import policy  # noqa: E402

TICKETS_MAX = 1000


def tickets(job: policy.Job) -> int:
    """How many tickets a job has."""
    given = job.args.get("tickets", "1")
    return min(max(int(given), 1), TICKETS_MAX) if given.isdecimal() else 1


class Lottery(policy.Policy):
    """See the module."""

    def __init__(self) -> None:
        super().__init__()
        # The same drawings for the same jobs, so that simulations can be repeated.
        self.random = random.Random(1)

    def decide(self) -> None:
        while True:
            fit = [job for job in self.line if self.row_for(job.processors) is not None]
            if not fit:
                return self.rest_until_room()
            drawn = self.random.choices(fit, weights=[tickets(job) for job in fit])[0]
            self.start(drawn)


if __name__ == "__main__":
    policy.run(Lottery())
