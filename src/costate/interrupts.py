"""Ctrl-C as a request: the first one asks a run to save and stop, a second one stops it at once."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def stop_requests(on_request: Callable[[], None]) -> Iterator[Callable[[], bool]]:
    """While open, SIGINT and SIGTERM set a flag instead of ending the process; yields a function that reads it."""
    requested = threading.Event()

    def request(signum: int, frame: FrameType | None) -> None:
        if requested.is_set():
            raise KeyboardInterrupt
        requested.set()
        on_request()

    # Only the main thread may set handlers; elsewhere (a notebook's worker, a test) the caller's own handling stays.
    if threading.current_thread() is not threading.main_thread():
        yield requested.is_set
        return
    previous = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield requested.is_set
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
