"""Tests of the client with a real instance: `tutti` in PATH, reached by TUTTI_DIR or as the system's.

TUTTI_DIR=... python3 -m unittest discover -s python/tests
"""

import datetime
import json
import pathlib
import subprocess
import sys
import tempfile
import typing
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import tutti  # noqa: E402


class Jobs(unittest.TestCase):
    def setUp(self):
        self._directory = tempfile.TemporaryDirectory()
        self.addCleanup(self._directory.cleanup)
        self.output = pathlib.Path(self._directory.name) / "%j.out"

    def submit(self, command, **options):
        job = tutti.submit(command, output=self.output, **options)
        self.addCleanup(self._end, job)
        return job

    @staticmethod
    def _end(job):
        try:
            job.cancel(now=True)
        except tutti.TuttiError:
            pass

    def test_a_job_is_submitted_followed_and_waited_for(self):
        line = "for i in 1 2 3; do echo $GREETING $i; sleep 0.1; done; exit 3"
        job = self.submit(
            ["sh", "-c", line], name="a b", time=90, memory=64 << 20, environment={"GREETING": "hé"}
        )
        self.assertEqual(list(job.follow()), ["hé 1\n", "hé 2\n", "hé 3\n"])
        ended = job.wait()
        self.assertEqual((ended.exit_code, ended.ending, ended.name), (3, "failed", "a b"))
        self.assertEqual(
            (ended.time_limit_ms, ended.details["memory_per_task_bytes"]), (90_000, 64 << 20)
        )
        self.assertTrue(ended.has_ended and not ended.has_succeeded)
        self.assertGreater(ended.usage.processes, 0)
        self.assertEqual(job.logs(lines=1), "hé 3\n")
        words = [event.event for event in job.events(follow=True)]
        self.assertEqual((words[0], words[-1]), ("job_submitted", "job_ended"))
        listed = {
            it.job: it
            for it in tutti.history(since=datetime.datetime.now() - datetime.timedelta(days=1))
        }
        self.assertEqual(listed[job.number].exit_code, 3)

    def test_a_line_of_a_shell_runs_once_and_a_command_for_each_task(self):
        self.assertEqual(self.submit("echo one && true", tasks=2).wait().exit_code, 0)
        self.assertEqual(tutti.run(["echo", "two"], tasks=2).stdout, "two\ntwo\n")
        self.assertEqual(tutti.run(["cat"], input="read").stdout, "read")

    def test_orders_and_dependencies(self):
        first = self.submit(["true"], hold=True)
        self.assertEqual(first.info().wait, "held")
        second = self.submit(["sleep", "1000"], after=[first], time="1h")
        self.assertEqual(second.info().wait, "after")
        first.release()
        self.assertTrue(first.wait().has_succeeded)
        with self.assertRaises(TimeoutError):
            second.wait(timeout=0.3)
        second.suspend()
        self.assertEqual(second.info().state, "suspended")
        second.resume()
        self.assertIn(second.number, [it.job for it in tutti.jobs()])
        second.cancel(now=True)
        self.assertEqual((second.wait().ending, second.wait().exit_code), ("cancelled", 137))

    def test_leaving_a_loop_of_events_ends_its_command(self):
        events = tutti.events(follow=True, since=0)
        self.assertIsInstance(next(events).at, datetime.datetime)
        events.close()

    def test_errors_say_what_to_do(self):
        for wrong, code in (
            (lambda: tutti.job(99999).info(), "T021"),
            (lambda: tutti.job(99999).wait(), "T021"),
            (lambda: list(tutti.job(99999).follow()), "T021"),
            (lambda: tutti.submit(["/nope"]), "T004"),
            (lambda: tutti.submit(["true"], time="90"), "T001"),
            (lambda: tutti.submit(["true"], name="-x", options=["--nope"]), "T001"),
            (lambda: tutti.Client("/nope").jobs(), None),
        ):
            with self.assertRaises(tutti.TuttiError) as raised:
                wrong()
            self.assertEqual(raised.exception.code, code, raised.exception)
        with self.assertRaises(ValueError):
            tutti.submit(["true"], time=-1)
        with self.assertRaises(ValueError):
            tutti.submit([])
        with self.assertRaises(subprocess.CalledProcessError):
            tutti.run(["false"])

    def test_a_job_that_ends_with_the_code_of_refusals_is_no_refusal(self):
        self.assertEqual(self.submit(["sh", "-c", "exit 125"]).wait().exit_code, 125)

    def test_nodes(self):
        (node,) = tutti.nodes()
        self.assertEqual((node.state, node.drained), ("up", None))

    def test_fields_are_those_of_the_reference(self):
        schema = json.loads((ROOT / "docs/reference/jobs.schema.json").read_text())["$defs"]
        fields = set(typing.get_type_hints(tutti.JobInfo)) - {"raw", "job_class"} | {"class"}
        listed = {
            name for it in ("ps", "show", "history") for name in schema[it]["items"]["properties"]
        }
        self.assertEqual(fields, listed)
        self.assertEqual(
            set(typing.get_type_hints(tutti.Usage)), set(schema["usage"]["properties"])
        )


class Assistants(unittest.TestCase):
    """The server for assistants, as one would start it."""

    def ask(self, *requests, options=()):
        lines = "".join(
            it if isinstance(it, str) else json.dumps({"jsonrpc": "2.0", **it}) + "\n"
            for it in requests
        )
        done = subprocess.run(
            [sys.executable, "-m", "tutti.mcp", *options],
            input=lines,
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT / "python",
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def call(self, name, **arguments):
        (answer,) = self.ask(
            {"id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        )
        if "error" in answer:
            return answer["error"]["message"]
        return answer["result"]["content"][0]["text"]

    def test_it_shakes_hands_and_lists_its_tools(self):
        hello, tools = self.ask(
            {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}},
            {"method": "notifications/initialized"},
            {"id": "b", "method": "tools/list"},
        )
        self.assertEqual(hello["result"]["protocolVersion"], "2025-03-26")
        names = {it["name"] for it in tools["result"]["tools"]}
        self.assertLessEqual({"list_jobs", "submit_job", "cancel_job"}, names)
        (tools,) = self.ask({"id": 1, "method": "tools/list"}, options=["--read-only"])
        names = {it["name"] for it in tools["result"]["tools"]}
        self.assertIn("list_jobs", names)
        self.assertFalse(
            names
            & {"submit_job", "cancel_job", "suspend_job", "resume_job", "hold_job", "release_job"}
        )

    def test_a_job_is_submitted_and_read(self):
        with tempfile.TemporaryDirectory() as directory:
            job = json.loads(
                self.call("submit_job", command=["echo", "from afar"], output=f"{directory}/out")
            )["job"]
            self.assertEqual(json.loads(self.call("wait_for_job", job=job))["ending"], "completed")
            self.assertEqual(self.call("job_output", job=job), "from afar\n")
        self.assertIn(job, [it["job"] for it in json.loads(self.call("list_history", last=20))])
        self.assertEqual(len(json.loads(self.call("list_nodes"))), 1)
        self.assertIn("T021", self.call("explain_code", code="T021"))

    def test_bad_requests_are_answered(self):
        self.assertIn("[T021]", self.call("show_job", job=99999))
        self.assertIn("job is missing", self.call("show_job"))
        self.assertIn("no argument nope", self.call("list_nodes", nope=1))
        self.assertIn("no integer", self.call("show_job", job=True))
        self.assertIn("no integer", self.call("show_job", job=-3))
        self.assertIn("one of them", self.call("submit_job"))
        self.assertIn("no tool", self.call("nope"))
        long, wrong, array, none = self.ask(
            "x" * 2_000_000 + "\n", "[" * 100_000 + "\n", "[]\n", "\n", {"id": 4, "method": "nope"}
        )
        codes = [it["error"]["code"] for it in (long, wrong, array, none)]
        self.assertEqual(codes, [-32600, -32700, -32600, -32601])


if __name__ == "__main__":
    unittest.main()
