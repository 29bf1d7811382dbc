"""The module for policies, without Tutti: rounds go in, and answers come out."""

import io
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from tutti import policy  # noqa: E402

HELLO = {
    "message": "hello", "protocol": 1, "mode": "simulation", "now_ns": 0, "rows_max": 1,
    "quantum_ns": 1, "processors": 2000, "classes": [],
}


def round_of(number, free, events, more=False):
    return {
        "message": "round", "round": number, "now_ns": number, "in_charge": True, "rows_max": 1,
        "rows": [{"row": 1, "free": free}], "new_row": None, "more": more, "events": events,
    }


def answers(of, rounds):
    lines = "".join(json.dumps(line) + "\n" for line in [HELLO, *rounds])
    out = io.BytesIO()
    policy.run(of, reads=io.BytesIO(lines.encode()), writes=out)
    return [json.loads(line) for line in out.getvalue().splitlines()][1:]


class All(policy.Policy):
    """Starts all that fit, or declines them."""

    def __init__(self, declines=False):
        super().__init__()
        self.declines = declines

    def decide(self):
        for job in self.line:
            if self.declines:
                self.decline(job, "no")
            elif not self.start(job):
                break


class Rounds(unittest.TestCase):
    def test_an_answer_has_at_most_a_thousand_orders_and_the_others_follow(self):
        requests = [{"event": "request", "job": job, "processors": 1} for job in range(1, 1501)]
        for declines, what in [(False, "start"), (True, "decline")]:
            given = answers(
                All(declines),
                [round_of(1, 2000, requests, more=True), round_of(2, 2000, []),
                 round_of(3, 1000, []), round_of(4, 500, [])],
            )
            orders = [answer["orders"] for answer in given]
            self.assertEqual([len(it) for it in orders], [0, 1000, 500, 0])
            self.assertTrue(all(order["order"] == what for it in orders for order in it))
            jobs = sorted(order["job"] for it in orders for order in it)
            self.assertEqual(jobs, list(range(1, 1501)))

    def test_an_answer_says_what_is_waited_for_until_there_are_orders_left_over(self):
        class InTurn(All):
            def decide(self):
                for job in self.line:
                    if not self.start(job):
                        return self.rest(free=job.processors)
                self.rest_until_room()

        def request(job, processors):
            return {"event": "request", "job": job, "processors": processors}

        given = answers(
            InTurn(),
            [round_of(1, 4, [request(1, 3), request(2, 7), request(3, 1)]), round_of(2, 8, []),
             round_of(3, 0, [])],
        )
        self.assertEqual([answer["until"] for answer in given],
                         [{"free": 7}, {"new_jobs": True}, {"new_jobs": True}])
        room = policy.Policy()
        for job, processors in [(1, 5), (2, 3)]:
            room.waiting[job] = policy.Job(request(job, processors))
        room.rest_until_room()
        self.assertIn('{"free":3,"new_jobs":true}', room._until)
        all_at_once = [request(job, 1) for job in range(1, 1501)]

        class Declines(All):
            def decide(self):
                super().decide()
                self.rest()

        given = answers(Declines(True), [round_of(1, 9, all_at_once), round_of(2, 9, [])])
        self.assertEqual([answer.get("until") for answer in given], [None, {}])


if __name__ == "__main__":
    unittest.main()
