"""A stand-in for llama-server: a real process that follows a script, for tests of the engines.

It takes llama-server's flags (unknown ones are ignored) and answers `/health`, `/v1/models`, `/props` and chat
requests as a server with these flags would. What it does when comes from the JSON in `$STUB_SCRIPT`:

    {"steps": {"0": {...}, "0.5": {...}}, "options": {...}}

A step holds from its second on and changes what it names: `health`, `models`, `props` (HTTP status), `log` (a line),
`exit` (exit code), `signal` (kills itself with it), `eat` (takes so many MiB of memory), `refused` (true: not bound
yet, or no longer). Options: `alias`, `props` (merged into the answer of /props), `ignore_term`, `child` (starts
a process that ignores SIGTERM), `questions` (a file that gets a line per question), `answers`, `always`, `content` (how
questions are answered: see stub_answers.py), `starts` (a file that gets a line per start, with the port) and `by_start`
(scripts for the first, second, ... start).
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import stub_answers

STARTED = time.monotonic()
SCRIPT: dict[str, Any] = json.loads(os.environ.get("STUB_SCRIPT", "{}"))
VERSION = "version: 9784 (8be759e6f)"


def flags(argv: list[str]) -> dict[str, str]:
    """Flags with their values; a flag that is followed by another one has none."""
    out = {}
    for i, arg in enumerate(argv):
        if arg.startswith("--"):
            value = argv[i + 1] if i + 1 < len(argv) else ""
            out[arg] = "" if value.startswith("--") else value
    return out


FLAGS = flags(sys.argv[1:])


def say(line: str) -> None:
    """A line of the log."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


class Behaviour:
    """What the script says for now."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = dict(SCRIPT.get("options", {}))
        steps = SCRIPT.get("steps", {"0": {"health": 200}})
        if "starts" in self.options:
            path = Path(self.options["starts"])
            number = len(path.read_text().splitlines()) if path.exists() else 0
            with path.open("a") as file:
                file.write(FLAGS.get("--port", "") + "\n")
            by_start = self.options.get("by_start", [])
            steps = by_start[number] if number < len(by_start) else steps
        self.steps = sorted((float(at), step) for at, step in steps.items())
        self.now: dict[str, Any] = {"health": 503, "models": None, "props": None}

    def run(self, bind: Any) -> None:
        """Follow the steps, then sleep for ever."""
        close = None
        for at, step in self.steps:
            time.sleep(max(0.0, STARTED + at - time.monotonic()))
            if step.get("log"):
                say(step["log"])
            self.now.update(step)
            if "exit" in step:
                os._exit(step["exit"])
            if "signal" in step:
                os.kill(os.getpid(), step["signal"])
            if "eat" in step:
                self.hog = b"x" * (step["eat"] << 20)
            if close is None and not step.get("refused"):
                close = bind()
            elif close is not None and step.get("refused"):
                close()
        while True:
            time.sleep(60)


BEHAVIOUR = Behaviour()


def props() -> dict[str, Any]:
    """The settings that the flags ask for."""
    number = {
        "temperature": "--temp", "top_p": "--top-p", "top_k": "--top-k", "min_p": "--min-p",
        "presence_penalty": "--presence-penalty", "frequency_penalty": "--frequency-penalty",
        "repeat_penalty": "--repeat-penalty",
    }  # fmt: skip
    slots = int(FLAGS.get("--parallel", "1"))
    out = {
        "default_generation_settings": {
            "n_ctx": int(FLAGS.get("--ctx-size", "0")) // slots,
            "params": {name: float(FLAGS[flag]) for name, flag in number.items() if flag in FLAGS},
        },
        "total_slots": slots,
        "model_path": FLAGS.get("--model"),
        "build_info": "b9784-8be759e6f",
        "chat_template": "{{ messages }}",
    }
    for key, value in BEHAVIOUR.options.get("props", {}).items():
        if key == "params":
            out["default_generation_settings"]["params"].update(value)  # type: ignore[index]
        else:
            out[key] = value
    return out


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers as the script says."""

    def _send(self, status: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        now = BEHAVIOUR.now
        loading = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
        alias = BEHAVIOUR.options.get("alias", FLAGS.get("--alias"))
        answers = {
            "/health": (now["health"], {"status": "ok"}),
            "/v1/models": (now["models"] or now["health"], {"data": [{"id": alias, "aliases": [alias]}]}),
            "/props": (now["props"] or now["health"], props()),
        }
        if self.path == "/env":
            self._send(200, dict(os.environ))
            return
        status, body = answers.get(self.path, (404, {"detail": "Not Found"}))
        self._send(status, body if status == 200 else loading)

    def do_POST(self) -> None:
        if "questions" in BEHAVIOUR.options:
            with Path(BEHAVIOUR.options["questions"]).open("a") as file:
                file.write(self.path + "\n")
        if self.path == "/v1/chat/completions" and {"answers", "always", "content"} & set(BEHAVIOUR.options):
            stub_answers.answer(self, BEHAVIOUR.options, "b9784-8be759e6f")
            return
        self._send(BEHAVIOUR.now["health"], {"choices": []})

    def log_message(self, *args: object) -> None:
        """The log belongs to the script."""


def bind() -> Callable[[], None]:
    """Take the port, or say so and end as llama-server does. Returns what gives it back."""
    port = int(FLAGS.get("--port", "8080"))
    try:
        server = http.server.ThreadingHTTPServer((FLAGS.get("--host", "127.0.0.1"), port), Handler)
    except OSError:
        say(f"0.00.003.521 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: {port}")
        say("0.00.003.604 E srv          init: exiting due to HTTP server error")
        os._exit(1)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_close


def main() -> None:
    """Be the server."""
    if "--version" in FLAGS:
        say(VERSION)
        return
    if BEHAVIOUR.options.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    if BEHAVIOUR.options.get("child"):
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    BEHAVIOUR.run(bind)


if __name__ == "__main__":
    main()
