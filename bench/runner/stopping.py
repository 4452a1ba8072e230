"""How a run is told to stop: by Ctrl-C once, by Ctrl-C twice, or by SIGTERM."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.reporter import Reporter


@dataclass
class Stopping:
    """What the signals have asked for so far."""

    soon: threading.Event = field(default_factory=threading.Event)
    """Finish the answer in flight, then stop."""
    now: threading.Event = field(default_factory=threading.Event)
    """Break it off."""
    _breakable: bool = False

    @contextlib.contextmanager
    def breakable(self) -> Iterator[None]:
        """Work in which no answer can be lost, such as a download or a load: a signal ends it at once, with
        KeyboardInterrupt. Only the main thread is interrupted; in another one this does nothing."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        self._breakable = True
        try:
            if self.soon.is_set():
                raise KeyboardInterrupt
            yield
        finally:
            self._breakable = False

    @contextlib.contextmanager
    def signals(self, reporter: Reporter) -> Iterator[None]:
        """First SIGINT: finish the answer in flight and stop cleanly. Second, or SIGTERM: break it off."""

        def handle(number: int, frame: object) -> None:  # noqa: ARG001
            if number == signal.SIGTERM or self.soon.is_set():
                self.now.set()
            first = not self.soon.is_set()
            self.soon.set()
            if self._breakable:
                self._breakable = False  # the clean-up that follows is not broken off by a third
                raise KeyboardInterrupt
            if first:
                reporter.warn("stopping after this answer; Ctrl-C once more to stop now")

        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
