"""Ctrl-C, a polite kill and a closed terminal as a request: the first asks a run to save and stop, a second one stops it at once."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

INTERRUPTED = 130
"""What a shell reports for a program that Ctrl-C ended."""
NOTICE = b"\nStopping after this iteration, then saving; press Ctrl-C again to stop now ...\n"


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

    with _handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), handle):
        yield request


@contextlib.contextmanager
def ended_politely() -> Iterator[None]:
    """While open, a polite kill and a closed terminal end the program as Ctrl-C does: what is open is closed, and the exit code is the same."""

    def handle(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled((signal.SIGTERM, signal.SIGHUP), handle), _heard():
        yield


# Seconds after which a Ctrl-C comes again that came where nothing can be raised.
LATER = 0.05


@contextlib.contextmanager
def _heard() -> Iterator[None]:
    """While open, no Ctrl-C is lost: one that comes in a finaliser or in a callback of the garbage collector, JAX has one, is ignored by Python."""

    def ignored(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        again = threading.Timer(LATER, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    before, sys.unraisablehook = sys.unraisablehook, ignored
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def _handled(numbers: Sequence[signal.Signals], handle: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """While open, these signals are answered by ``handle``."""
    # Only the main thread may set handlers; elsewhere (a notebook's worker, a test) the caller's own handling stays.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Whoever starts a program with `nohup` wants it to go on when the terminal is closed.
    wanted = [number for number in numbers if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN]
    previous = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
