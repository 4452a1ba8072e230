"""A headless Chromium driven over its debugging pipe: a real browser, without a further package."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest


def find_chromium() -> str:
    """The browser's program; without one the test is skipped, and fails under CI."""
    for name in ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable"):
        if found := shutil.which(name):
            return found
    if os.environ.get("CI"):
        pytest.fail("no Chromium: CI installs one")
    pytest.skip("no Chromium on this machine")


def _pipe() -> tuple[int, int]:
    ends = os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in ends]
    for end in ends:
        os.close(end)
    return high[0], high[1]


class Browser:
    """One page of a headless Chromium, and everything that it said or asked for."""

    def __init__(self, folder: Path) -> None:
        # Chromium reads from descriptor 3 and writes to 4. A shell puts the pipes there: they must not lie there yet.
        (to_read, self._to), (self._from, to_write) = _pipe(), _pipe()
        command = [
            "bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "bash", find_chromium(), "--headless",
            "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-pipe",
            f"--user-data-dir={folder / 'profile'}", "--no-first-run", "--disable-background-networking",
        ]  # fmt: skip
        self._process = subprocess.Popen(
            command, pass_fds=(to_read, to_write), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(to_read)
        os.close(to_write)
        self._rest, self._next = b"", 0
        self.console: list[str] = []
        """Messages of the console, of the log, and exceptions."""
        self.requests: list[str] = []
        """Addresses that the page asked for; those inside the page (data:) are none."""
        self._loaded = False
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        self._session = self._call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, tb: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._to)
        os.close(self._from)

    def call(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        return self._call(method, params or {}, self._session)

    def open(self, path: Path, *, width: int, dark: bool = False) -> None:
        """Load a file and wait until it is there."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False},
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self._loaded = False
        self.call("Page.navigate", {"url": path.absolute().as_uri()})
        until = time.monotonic() + 30
        while not self._loaded and time.monotonic() < until:
            self.evaluate("1")
        assert self._loaded, "the page did not load within 30 s"

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page."""
        answer = self.call("Runtime.evaluate", {"expression": expression, "returnByValue": True})
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def screenshot(self, path: Path) -> None:
        """The whole page as a picture."""
        shot = self.call("Page.captureScreenshot", {"captureBeyondViewport": True})
        path.write_bytes(base64.b64decode(shot["data"]))

    def _call(self, method: str, params: dict[str, Any], session: str | None = None) -> dict[str, Any]:
        self._next += 1
        number = self._next
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self._heard(answer.get("method", ""), answer.get("params", {}))

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            got = os.read(self._from, 1 << 20)
            assert got, "the browser ended"
            self._rest += got
        one, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(one))

    def _heard(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Runtime.consoleAPICalled":
            self.console.append(str(params["args"]))
        elif method == "Runtime.exceptionThrown":
            self.console.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.console.append(f"{params['entry']['level']}: {params['entry']['text']}")
        elif method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("data:", "about:")):
            self.requests.append(params["request"]["url"])
