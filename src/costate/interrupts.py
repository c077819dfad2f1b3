"""Ctrl-C as a request: the first one asks a run to save and stop, a second one stops it at once."""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended."""
NOTICE = b"\nStopping: finishing what is under way, then saving (Ctrl-C again to stop at once) ...\n"


class StopRequest:
    """Whether somebody has asked the run to stop."""

    def __init__(self) -> None:
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()


@contextlib.contextmanager
def stop_requests(notice: bytes = NOTICE) -> Iterator[StopRequest]:
    """While open, Ctrl-C, a polite kill and a closed terminal ask for a stop instead of ending the process."""
    request = StopRequest()

    def handle(signum: int, frame: FrameType | None) -> None:
        if request.asked:
            raise KeyboardInterrupt
        request.ask()
        # Not print: the signal may have come in the middle of one.
        with contextlib.suppress(OSError):
            os.write(2, notice)

    # Only the main thread may set handlers; elsewhere (a notebook's worker, a test) the caller's own handling stays.
    if threading.current_thread() is not threading.main_thread():
        yield request
        return
    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
