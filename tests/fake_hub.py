"""A small Hugging Face hub on loopback: commits, checksums, ranges, and the errors that the real one sends."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Hub:
    """What the hub holds, and what it was asked."""

    files: dict[str, bytes] = field(default_factory=dict)
    """`OWNER/NAME/FILE` -> content."""
    gated: set[str] = field(default_factory=set)
    ranges: bool = True
    cut_after: int | None = None
    """Close the connection after so many bytes of each answer."""
    corrupt: bool = False
    """Send bytes that differ from the announced checksum."""
    announce: dict[str, bytes] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    sent: int = 0
    url: str = ""

    def repos(self) -> set[str]:
        return {"/".join(name.split("/")[:2]) for name in self.files} | self.gated


class _Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_: object) -> None: ...

    def _fail(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path).strip("/")
        hub.log.append(f"{self.command} {path} {self.headers.get('Range', '')}".strip())
        if path.startswith("api/models/"):
            self._listing(path)
            return
        parts = path.split("/")
        if len(parts) < 5 or parts[2] != "resolve":
            self._fail(404, "RepoNotFound")
            return
        repo, revision, name = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
        if repo in hub.gated:
            self._fail(403, "GatedRepo")
            return
        if repo not in hub.repos():
            self._fail(404, "RepoNotFound")
            return
        if revision not in ("main", "v1", COMMIT):
            self._fail(404, "RevisionNotFound")
            return
        content = hub.files.get(f"{repo}/{name}")
        if content is None:
            self._fail(404, "EntryNotFound")
            return
        self._send(content, body)

    def _send(self, content: bytes, body: bool) -> None:
        hub, start, asked = self.hub, 0, self.headers.get("Range")
        stop = len(content)
        if asked and hub.ranges:
            first, _, last = asked.removeprefix("bytes=").partition("-")
            start, stop = int(first), min(int(last) + 1 if last else stop, stop)
            if start >= len(content):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
        else:
            self.send_response(200)
        digest = hashlib.sha256(content).hexdigest()
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("X-Linked-Etag", f'"{digest}"')
        self.send_header("X-Linked-Size", str(len(content)))
        self.send_header("ETag", f'"{digest}"')
        self.send_header("Content-Length", str(stop - start))
        self.end_headers()
        if not body:
            return
        piece = content[start:stop]
        if hub.corrupt:
            piece = piece[:-1] + bytes([piece[-1] ^ 1])
        if hub.cut_after is not None and len(piece) > hub.cut_after:
            piece = piece[: hub.cut_after]
            self.close_connection = True
        hub.sent += len(piece)
        self.wfile.write(piece)

    def _listing(self, path: str) -> None:
        repo = "/".join(path.split("/")[2:4])
        names = [name.removeprefix(repo + "/") for name in self.hub.files if name.startswith(repo + "/")]
        if not names:
            self._fail(404, "RepoNotFound")
            return
        answer = {"id": repo, "modelId": repo, "sha": COMMIT, "siblings": [{"rfilename": n} for n in names]}
        raw = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


@contextmanager
def serve(hub: Hub) -> Iterator[Hub]:
    """Serve a hub until the block ends."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
