#!/usr/bin/env python3
"""Starts the jobs in line: all that fit in a round, or one if its name has `one` in it. If its name
has `nothing` in it, it leaves all to the built-in policy."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), "../../python"))
from tutti import policy  # noqa: E402

ONE = "one" in os.path.basename(sys.argv[0])
NOTHING = "nothing" in os.path.basename(sys.argv[0])


class Decisions(policy.Policy):
    def decide(self):
        if NOTHING:
            if self.in_charge:
                self.yield_charge()
            return self.rest()
        while self.waiting:
            job = next(iter(self.waiting.values()))
            if not self.start(job):
                return self.rest(free=job.processors)
            if ONE:
                break
        if not self.waiting:
            self.rest(new_jobs=True)


if __name__ == "__main__":
    policy.run(Decisions())
