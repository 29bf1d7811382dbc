"""Tutti for assistants: a server of the Model Context Protocol over standard input and output.

    python3 -m tutti.mcp [--read-only] [--program PATH]

It offers jobs, nodes, output and history as tools, with the rights of its user. With `--read-only` it
offers none that changes anything. Answers are bounded: lists have at most 100 entries, output the last
200 lines and 64 KiB.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
from typing import Any, Callable, Dict, List, Optional

import tutti

# Versions of the protocol that the server speaks, the newest first.
_VERSIONS = ("2025-06-18", "2025-03-26", "2024-11-05")
_LIST_MAX = 100
_LINES_MAX = 200
_TEXT_MAX = 64 * 1024
# A longer line is refused unread.
_REQUEST_MAX = 1024 * 1024

# Errors of JSON-RPC 2.0.
_PARSE_ERROR, _INVALID_REQUEST, _NO_METHOD, _INVALID_PARAMS = -32700, -32600, -32601, -32602

_JOB = {"type": "integer", "minimum": 1, "description": "Number of the job"}
_USER = {"type": "string", "description": "Only jobs of this user"}


@dataclasses.dataclass(frozen=True)
class _Tool:
    name: str
    help: str
    properties: Dict[str, Dict[str, Any]]
    required: List[str]
    changes: bool
    call: Callable[[tutti.Client, Dict[str, Any]], Any]

    def described(self) -> Dict[str, Any]:
        schema = {
            "type": "object",
            "properties": self.properties,
            "required": self.required,
            "additionalProperties": False,
        }
        hints = {"readOnlyHint": not self.changes, "openWorldHint": False}
        return {
            "name": self.name,
            "description": self.help,
            "inputSchema": schema,
            "annotations": hints,
        }


def _short(jobs: List[tutti.JobInfo]) -> Any:
    names = (
        "job",
        "name",
        "user",
        "class",
        "state",
        "reason",
        "tasks",
        "processors",
        "placement",
        "exit_code",
    )
    more = ("ending", "wait", "position", "service_ms", "time_left_ms")
    listed = [
        {name: job.raw[name] for name in names + more if job.raw.get(name) is not None}
        for job in jobs[:_LIST_MAX]
    ]
    left_out = len(jobs) - len(listed)
    return {"jobs": listed, "left_out": left_out} if left_out else listed


def _output(client: tutti.Client, given: Dict[str, Any]) -> str:
    lines = min(given.get("lines", _LINES_MAX), _LINES_MAX)
    text = client.logs(
        given["job"], rank=given.get("rank"), error=given.get("error", False), lines=lines
    )
    return text[-_TEXT_MAX:]


def _submit(client: tutti.Client, given: Dict[str, Any]) -> Any:
    options = {
        name: value for name, value in given.items() if name not in ("command", "script_line")
    }
    if ("command" in given) == ("script_line" in given):
        raise ValueError("give command or script_line, one of them")
    command = given["command"] if "command" in given else given["script_line"]
    return {"job": client.submit(command, **options).number}


def _ordered(order: str) -> Callable[[tutti.Client, Dict[str, Any]], Any]:
    def call(client: tutti.Client, given: Dict[str, Any]) -> str:
        getattr(client, order)(given["job"])
        return "accepted"

    return call


def _wait(client: tutti.Client, given: Dict[str, Any]) -> Any:
    try:
        return client.wait(given["job"], timeout=min(given.get("seconds", 60), 600)).raw
    except TimeoutError:
        return client.show(given["job"]).raw


def _explain(client: tutti.Client, given: Dict[str, Any]) -> str:
    return client.explain(given["code"])


def _history(client: tutti.Client, given: Dict[str, Any]) -> Any:
    last = min(given.get("last", _LIST_MAX), _LIST_MAX)
    chosen = {name: given.get(name) for name in ("user", "since", "until", "state")}
    return _short(client.history(last=last, **chosen))


def _string(text: str) -> Dict[str, Any]:
    return {"type": "string", "description": text}


def _count(text: str) -> Dict[str, Any]:
    return {"type": "integer", "minimum": 0, "description": text}


_TOOLS = (
    _Tool(
        "list_jobs",
        "List jobs that wait or run, with the reason why each waits.",
        {"user": _USER, "ended": {"type": "boolean", "description": "Also jobs that have ended"}},
        [],
        False,
        lambda client, given: _short(client.jobs(**given)),
    ),
    _Tool(
        "show_job",
        "Show a job, live or ended: command, nodes, limits, files, states, usage.",
        {"job": _JOB},
        ["job"],
        False,
        lambda client, given: client.show(given["job"]).raw,
    ),
    _Tool(
        "job_output",
        "Show the last lines that a submitted job has written.",
        {
            "job": _JOB,
            "rank": _count("Only of this rank"),
            "error": {"type": "boolean", "description": "Standard error"},
            "lines": _count(f"Number of lines, at most {_LINES_MAX}"),
        },
        ["job"],
        False,
        _output,
    ),
    _Tool(
        "wait_for_job",
        "Wait until a job has ended, and show it. After the given time it is shown as it is.",
        {"job": _JOB, "seconds": _count("How long at most: 60 unless given, at most 600")},
        ["job"],
        False,
        _wait,
    ),
    _Tool(
        "list_history",
        "List jobs that have ended, the latest last, and what they used.",
        {
            "user": _USER,
            "since": _string("Ended at this time or later: 2d ago, or 2026-03-28T14:30"),
            "until": _string("Ended before this time"),
            "state": _string(
                "How they ended: completed, failed, cancelled, timed-out, out-of-memory"
            ),
            "last": _count(f"Only the latest, at most {_LIST_MAX}"),
        },
        [],
        False,
        _history,
    ),
    _Tool(
        "list_nodes",
        "List nodes with their processors, memory, load and state.",
        {},
        [],
        False,
        lambda client, given: [node.raw for node in client.nodes()[:_LIST_MAX]],
    ),
    _Tool(
        "explain_code",
        "Explain a code of an error, such as T021: its cause, and what to do.",
        {"code": _string("The code")},
        ["code"],
        False,
        _explain,
    ),
    _Tool(
        "submit_job",
        "Submit a job: command runs once for each task; script_line is a line of a shell that runs once.",
        {
            "command": {
                "type": "array",
                "items": {"type": "string"},
                "minItems": 1,
                "description": "Program, arguments",
            },
            "script_line": _string("A line of a shell"),
            "tasks": {"type": "integer", "minimum": 1, "description": "Number of tasks"},
            "processors": {
                "type": "integer",
                "minimum": 1,
                "description": "Processors of each task",
            },
            "memory": _string("Memory of each task, such as 4G"),
            "time": _string("Time limit, such as 30m or 2h"),
            "name": _string("Name of the job"),
            "directory": _string("Working directory"),
            "job_class": _string("Class"),
            "queue": _string("Queue"),
            "after": _string("Jobs that must have ended first, such as 7 or 7:any"),
            "output": _string("File for standard output"),
        },
        [],
        True,
        _submit,
    ),
    _Tool("cancel_job", "End a job.", {"job": _JOB}, ["job"], True, _ordered("cancel")),
    _Tool(
        "suspend_job",
        "Take the turns of a job until it is resumed.",
        {"job": _JOB},
        ["job"],
        True,
        _ordered("suspend"),
    ),
    _Tool(
        "resume_job",
        "Give a suspended job turns again.",
        {"job": _JOB},
        ["job"],
        True,
        _ordered("resume"),
    ),
    _Tool(
        "hold_job",
        "Keep a waiting job out of the line.",
        {"job": _JOB},
        ["job"],
        True,
        _ordered("hold"),
    ),
    _Tool(
        "release_job",
        "Put a held job into the line again.",
        {"job": _JOB},
        ["job"],
        True,
        _ordered("release"),
    ),
)

_TYPES = {"integer": int, "string": str, "boolean": bool, "array": list}


def _check(tool: _Tool, given: Any) -> Optional[str]:
    """What is wrong with the arguments of a call."""
    if not isinstance(given, dict):
        return "arguments are no object"
    for name in tool.required:
        if name not in given:
            return f"{name} is missing"
    for name, value in given.items():
        wanted = tool.properties.get(name)
        if wanted is None:
            return f"there is no argument {name}; there are {', '.join(tool.properties) or 'none'}"
        right = isinstance(value, _TYPES[wanted["type"]]) and (
            wanted["type"] != "integer" or not isinstance(value, bool)
        )
        if right and wanted["type"] == "array":
            right = len(value) > 0 and all(isinstance(it, str) for it in value)
        if right and wanted["type"] == "integer":
            right = value >= wanted["minimum"]
        if not right:
            return f"{name} is no {wanted['type']} as described"
    return None


class Server:
    """Answers requests, one after the other."""

    def __init__(self, client: tutti.Client, read_only: bool):
        self._client = client
        self._tools = {tool.name: tool for tool in _TOOLS if not (read_only and tool.changes)}

    def answer(self, line: bytes) -> Optional[Dict[str, Any]]:
        """The answer to a line; None to a notification."""
        try:
            request = json.loads(line)
        except (ValueError, RecursionError):
            return _failed(None, _PARSE_ERROR, "this line is no JSON")
        if not isinstance(request, dict) or not isinstance(request.get("method"), str):
            return _failed(None, _INVALID_REQUEST, "this is no request")
        if "id" not in request:
            return None
        number, method, params = request["id"], request["method"], request.get("params") or {}
        if not isinstance(params, dict):
            return _failed(number, _INVALID_PARAMS, "params are no object")
        if method == "initialize":
            return _done(number, self._hello(params))
        if method == "ping":
            return _done(number, {})
        if method == "tools/list":
            return _done(number, {"tools": [tool.described() for tool in self._tools.values()]})
        if method == "tools/call":
            return self._called(number, params)
        return _failed(number, _NO_METHOD, f"there is no method {method}")

    def _hello(self, params: Dict[str, Any]) -> Dict[str, Any]:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in _VERSIONS else _VERSIONS[0],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "tutti", "version": "1"},
            "instructions": "Tutti runs parallel jobs on this machine or cluster. Errors have codes: explain_code.",
        }

    def _called(self, number: Any, params: Dict[str, Any]) -> Dict[str, Any]:
        name = params.get("name")
        tool = self._tools.get(name) if isinstance(name, str) else None
        if tool is None:
            return _failed(number, _INVALID_PARAMS, f"there is no tool {name}")
        given = params.get("arguments") or {}
        wrong = _check(tool, given)
        if wrong is not None:
            return _failed(number, _INVALID_PARAMS, f"{tool.name}: {wrong}")
        try:
            said = tool.call(self._client, given)
            text = said if isinstance(said, str) else json.dumps(said, ensure_ascii=False)
            return _done(number, _content(text, False))
        except (tutti.TuttiError, ValueError, subprocess.SubprocessError) as error:
            return _done(number, _content(str(error), True))


def _content(text: str, is_error: bool) -> Dict[str, Any]:
    return {"content": [{"type": "text", "text": text}], "isError": is_error}


def _done(number: Any, result: Dict[str, Any]) -> Dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _failed(number: Any, code: int, message: str) -> Dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def main() -> None:
    """Serves until its input ends."""
    parser = argparse.ArgumentParser(
        prog="python3 -m tutti.mcp", description="Tutti for assistants, over MCP."
    )
    parser.add_argument(
        "--read-only", action="store_true", help="offer no tool that changes anything"
    )
    parser.add_argument(
        "--program", default="tutti", help="the command, by name or path [default: tutti]"
    )
    given = parser.parse_args()
    server = Server(tutti.Client(given.program), given.read_only)
    while line := sys.stdin.buffer.readline(_REQUEST_MAX + 1):
        if len(line) > _REQUEST_MAX:
            while line and not line.endswith(b"\n"):
                line = sys.stdin.buffer.readline(_REQUEST_MAX)
            answer: Optional[Dict[str, Any]] = _failed(
                None, _INVALID_REQUEST, "this line is longer than 1 MiB"
            )
        elif not line.strip():
            continue
        else:
            answer = server.answer(line)
        if answer is not None:
            sys.stdout.write(json.dumps(answer) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
