"""How the llama-server stand-in answers questions: protocol-true, and then with the fault that the script asks for.

Each chat request takes the next kind of the option `answers`; after the last one, `ok`. With the option `counter` (a
file) the count goes on over restarts. Kinds:

    ok            a whole answer
    exit, kill    the process ends, or kills itself, in the middle of an answer
    oom           logs what CUDA says when its memory is used up, and aborts in the middle of an answer
    gpu_lost      the same for a GPU that is gone
    hang          two tokens, then pings for ever
    silent        pings from the start, never a token
    deaf          takes the request and never says a byte
    cut           the body ends in the middle of an answer
    late_error    an error inside the stream
    status_500    an error page
    no_json       lines that are not JSON
    no_done       the stream ends without [DONE]
    page          an HTML page with status 200
    loop          the same line until `max_tokens`, finish reason `length`
    slow          a whole answer, 0.1 s a token
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

LOGS = {
    "oom": (
        "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 512 MiB on device 0: cudaMalloc failed: out of memory"
    ),
    "gpu_lost": "CUDA error: device is lost or fell off the bus\nggml_cuda_error: unspecified launch failure",
}

_GUARD = threading.Lock()
_count = 0


def next_kind(options: dict[str, Any]) -> str:
    """The kind of the next answer."""
    global _count
    kinds = options.get("answers", [])
    with _GUARD:
        if "counter" not in options:
            _count += 1
            number = _count
        else:
            with Path(options["counter"]).open("a+") as file:
                fcntl.flock(file, fcntl.LOCK_EX)
                file.write("x")
                file.flush()
                number = file.tell()
    if options.get("always"):
        return str(options["always"])
    return str(kinds[number - 1]) if number <= len(kinds) else "ok"


def answer(handler: Any, options: dict[str, Any], fingerprint: str) -> None:
    """Answer a chat request."""
    size = int(handler.headers.get("Content-Length", "0"))
    request = json.loads(handler.rfile.read(size))
    kind = next_kind(options)
    if kind == "deaf":
        time.sleep(3600)
    if kind == "status_500":
        _page(handler, 500, "application/json", json.dumps({"error": {"code": 500, "message": "decode failed"}}))
        return
    if kind == "page":
        _page(handler, 200, "text/html", "<html>It works!</html>")
        return
    handler.send_response(200)
    handler.send_header("Content-Type", "text/event-stream")
    handler.send_header("Connection", "close")
    handler.end_headers()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _stream(handler, kind, options, request, fingerprint)
    handler.close_connection = True


def _page(handler: Any, status: int, content_type: str, text: str) -> None:
    handler.send_response(status)
    handler.send_header("Content-Type", content_type)
    handler.send_header("Content-Length", str(len(text)))
    handler.end_headers()
    handler.wfile.write(text.encode())


def _stream(handler: Any, kind: str, options: dict[str, Any], request: dict[str, Any], fingerprint: str) -> None:
    common = {"object": "chat.completion.chunk", "model": "stub", "system_fingerprint": fingerprint}

    def send(value: Any) -> None:
        handler.wfile.write(b"data: " + (value if isinstance(value, bytes) else json.dumps(value).encode()) + b"\n\n")
        handler.wfile.flush()

    def choice(delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
        return {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}

    def ping_for_ever() -> None:
        while True:
            handler.wfile.write(b":\n\n")
            handler.wfile.flush()
            time.sleep(0.1)

    if kind == "silent":
        ping_for_ever()
    if kind == "no_json":
        send(b"this is no JSON {")
        return
    # The text depends on the seed, so that a replay can tell whether it was sent.
    text = options.get("content") or f"```python\ndef f():\n    return {request['seed']}\n```\n"
    parts = ["same line again and again\n"] * int(request["max_tokens"]) if kind == "loop" else text.split(" ")
    delay = 0.1 if kind == "slow" else float(options.get("token_s", 0.0))
    started = time.monotonic()
    send(choice({"role": "assistant", "content": None}))
    for number, part in enumerate(parts):
        if number == 2 and kind in ("exit", "kill", "oom", "gpu_lost", "hang", "cut", "late_error"):
            _fault(kind, send, ping_for_ever)
            return
        time.sleep(delay)
        send(choice({"content": part if kind == "loop" or number == 0 else " " + part}))
    send(choice({}, "length" if kind == "loop" else "stop"))
    spent = (time.monotonic() - started) * 1000
    n = len(parts)
    send({
        **common, "choices": [],
        "usage": {"completion_tokens": n, "prompt_tokens": 10, "total_tokens": n + 10},
        "timings": {
            "cache_n": 0, "prompt_n": 10, "prompt_ms": 1.0, "predicted_n": n, "predicted_ms": max(spent, 0.001),
        },
    })  # fmt: skip
    if kind != "no_done":
        send(b"[DONE]")


def _fault(kind: str, send: Any, ping_for_ever: Any) -> None:
    if kind in LOGS:
        sys.stderr.write(LOGS[kind] + "\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGABRT)
    if kind == "exit":
        os._exit(1)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "hang":
        ping_for_ever()
    if kind == "late_error":
        send({"error": {"code": 500, "message": "decode failed", "type": "server_error"}})
        send(b"[DONE]")
