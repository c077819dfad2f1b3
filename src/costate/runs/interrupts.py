"""Turn signals into requests to stop: the first saves and stops a run, a second one stops it at once.

The signals are SIGINT (Ctrl-C), SIGTERM (``kill``) and SIGHUP (a closed terminal).
"""

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
    """Flag that says if the user has asked the run to stop."""

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
        """True if several signals came.

        While the main thread is inside a compiled program, Python reports several of them to it as one.
        """
        return self._signals > 1

    def announce(self) -> None:
        """Print once that the request was received."""
        if next(self._said) == 0:
            # Not print(): the signal may have interrupted one.
            with contextlib.suppress(OSError):
                os.write(2, self._notice)

    def hear(self) -> None:
        """Handle a signal in the sentinel's thread, which can do so even if the main thread cannot."""
        self._signals += 1
        self.announce()
        guard = sentinel()
        if guard is not None and (self.asked_twice or self._nothing_to_save):
            guard.end_soon()

    @contextlib.contextmanager
    def nothing_to_save(self) -> Iterator[None]:
        """End the process within seconds if a stop is requested inside this block.

        For example while it compiles. This works even if the main thread cannot handle the signal.
        """
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
    """Let SIGINT, SIGTERM and SIGHUP request a stop inside this block, instead of ending the process."""
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
def signals_as_interrupts() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise KeyboardInterrupt inside this block, as Ctrl-C does.

    Everything that is open gets closed, and the exit code is the same. A program that cannot handle signals,
    for example inside a compiler, is ended after a few seconds.
    """

    def handle(signum: int, frame: FrameType | None) -> None:
        _answered()
        raise KeyboardInterrupt

    numbers = [signal.SIGTERM, signal.SIGHUP]
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        numbers.append(signal.SIGINT)
    with _handled(numbers, handle), _resend_lost_interrupts(), guarded():
        yield


# Seconds after which a Ctrl-C is sent again if it came where Python cannot raise.
RESEND_AFTER = 0.05


@contextlib.contextmanager
def _resend_lost_interrupts() -> Iterator[None]:
    """Resend every Ctrl-C that Python ignores inside this block.

    Python ignores a Ctrl-C that arrives in a finaliser or in a callback of the garbage collector. JAX has
    such a callback.
    """

    def resend(unraisable: "sys.UnraisableHookArgs") -> None:
        if not issubclass(unraisable.exc_type, KeyboardInterrupt):
            before(unraisable)
            return
        again = threading.Timer(RESEND_AFTER, os.kill, (os.getpid(), signal.SIGINT))
        again.daemon = True
        again.start()

    before, sys.unraisablehook = sys.unraisablehook, resend
    try:
        yield
    finally:
        sys.unraisablehook = before


@contextlib.contextmanager
def _handled(
    numbers: Sequence[signal.Signals], handle: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Handle these signals by ``handle`` inside this block."""
    # Only the main thread may set handlers. In other threads (a notebook's worker, a test) the caller's
    # handlers stay.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # A program started with `nohup` ignores SIGHUP, so that it continues when the terminal is closed.
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
