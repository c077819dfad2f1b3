"""Ctrl-C, a polite kill and a closed terminal as a request: the first asks a run to save and stop, a second one stops it at once."""

import contextlib
import itertools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

from costate.runs.sentinel import INTERRUPTED as INTERRUPTED
from costate.runs.sentinel import guarded, sentinel

NOTICE = b"\nStopping after this iteration, then saving; press Ctrl-C again to stop now ...\n"


class StopRequest:
    """Whether somebody has asked the run to stop."""

    def __init__(self, notice: bytes = b"") -> None:
        self._asked = threading.Event()
        self._notice, self._said = notice, itertools.count()
        self._signals = 0
        self._nothing_to_save = False

    def ask(self) -> None:
        self._asked.set()

    @property
    def asked(self) -> bool:
        return self._asked.is_set()

    @property
    def asked_twice(self) -> bool:
        """Whether several signals came, of which Python tells the main thread as of one where that was inside of a compiled program."""
        return self._signals > 1

    def announce(self) -> None:
        """Say once that the request was heard."""
        if next(self._said) == 0:
            # Not print: the signal may have come in the middle of one.
            with contextlib.suppress(OSError):
                os.write(2, self._notice)

    def hear(self) -> None:
        """Answer a signal in the sentinel's thread: at once, also where the main thread cannot."""
        self._signals += 1
        self.announce()
        guard = sentinel()
        if guard is not None and (self.asked_twice or self._nothing_to_save):
            guard.end_soon()

    @contextlib.contextmanager
    def nothing_to_save(self) -> Iterator[None]:
        """While open, as while it compiles, the process ends in seconds if it is asked to, whether or not the main thread can answer."""
        self._nothing_to_save, guard = True, sentinel()
        if self.asked and guard is not None:
            guard.end_soon()
        try:
            yield
        finally:
            self._nothing_to_save = False
            if guard is not None and not self.asked_twice:
                guard.go_on()


@contextlib.contextmanager
def stop_requests(notice: bytes = NOTICE) -> Iterator[StopRequest]:
    """While open, Ctrl-C, a polite kill and a closed terminal ask for a stop instead of ending the process."""
    request = StopRequest(notice)

    def handle(signum: int, frame: FrameType | None) -> None:
        if request.asked or request.asked_twice:
            _answered()
            raise KeyboardInterrupt
        request.ask()
        request.announce()

    with _handled((signal.SIGINT, signal.SIGTERM, signal.SIGHUP), handle), _told_by_sentinel(request):
        yield request


@contextlib.contextmanager
def _told_by_sentinel(request: StopRequest) -> Iterator[None]:
    guard = sentinel()
    if guard is None:
        yield
        return
    before, guard.heard = guard.heard, request.hear
    try:
        yield
    finally:
        guard.heard = before


def _answered() -> None:
    guard = sentinel()
    if guard is not None:
        guard.answered()


@contextlib.contextmanager
def ended_politely() -> Iterator[None]:
    """While open, a polite kill and a closed terminal end the program as Ctrl-C does: what is open is closed, and the exit code is the same.

    A program that cannot answer them, as inside of a compiler, is ended after a few seconds.
    """

    def handle(signum: int, frame: FrameType | None) -> None:
        _answered()
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        numbers.append(signal.SIGINT)
    with _handled(numbers, handle), _heard(), guarded():
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
def _handled(
    numbers: Sequence[signal.Signals], handle: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """While open, these signals are answered by ``handle``."""
    # Only the main thread may set handlers; elsewhere (a notebook's worker, a test) the caller's own handling stays.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # Whoever starts a program with `nohup` wants it to go on when the terminal is closed.
    wanted = [
        number
        for number in numbers
        if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
    ]
    previous = {number: signal.signal(number, handle) for number in wanted}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
