#!/usr/bin/env python3
"""First come, first served; and on each node, idle time goes to the job with the least left.

The policy has a part at the controller and one on each node, as in the Jump-StarT thesis (section
2.3): the parts send each other messages, and a part on a node revises the order there at the ends
of tasks. Here the controller's part tells the nodes of a job how long it may run. A part on a node
puts the jobs of its node alone in the order of what is left of that.

    tutti sim trace.swf --policy ./shortest_here.py,rows=4,policy-node=./shortest_here.py
    tutti params policy=./shortest_here.py policy_node=./shortest_here.py
"""

import os
import sys
from typing import Dict

sys.path.insert(0, os.path.join(os.path.dirname(os.path.realpath(__file__)), ".."))
from tutti import policy  # noqa: E402


class Host(policy.Policy):
    """The part at the controller."""

    places = True

    def __init__(self) -> None:
        super().__init__()
        #: How many tasks have ended, as the nodes say.
        self.ended = 0

    def on_start(self, job: policy.Job) -> None:
        for node, _ in job.places:
            self.send(f"{job.number} {job.time_limit_ns or 0}", node)

    def on_message(self, node: int, text: str) -> None:
        self.ended += int(text)

    def decide(self) -> None:
        for job in self.line:
            if not self.start(job):
                return


class OnNode(policy.NodePolicy):
    """The part on a node."""

    def __init__(self) -> None:
        super().__init__()
        #: By job: until when it runs at most, if it runs all the time.
        self.until: Dict[int, int] = {}

    def on_message(self, text: str) -> None:
        job, limit = map(int, text.split())
        if limit > 0:
            self.until[job] = self.now_ns + limit

    def on_tasks_ended(self, job: int, count: int, ranks: list) -> None:
        self.until.pop(job, None)
        self.send(str(count))

    def decide(self) -> None:
        late = 1 << 63
        for slot in self.slots:
            order = sorted(slot.candidates, key=lambda it: (self.until.get(it.job, late), it.job))
            if order != slot.candidates:
                self.arrange(slot, order)


if __name__ == "__main__":
    policy.run(Host(), OnNode())
