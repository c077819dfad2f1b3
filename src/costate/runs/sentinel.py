"""Handle signals in a separate thread while the main thread is inside a compiled program or a compiler.

Python runs its signal handlers in the main thread, between two of its instructions. A program of XLA runs for
seconds without one, and after a failed allocation XLA has been seen to wait for ever. But the number of a
signal is written to a pipe at once, and this thread reads the pipe.
"""

import contextlib
import os
import pathlib
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

INTERRUPTED = 130
"""Exit code that a shell reports for a program that Ctrl-C ended."""
FAILED = 1
"""Exit code of a stalled program.

It differs from the code with which a sweep's worker reports a failed run: a stalled run is tried again, like
one that was killed.
"""
# Seconds that the main thread has to handle a signal, and then to close what is open.
GRACE, LONGER_GRACE = 5.0, 30.0
ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Number of checks, one a second, in a row at which no thread has run. After them the computation counts as
# stalled.
LOOKS, BETWEEN_LOOKS = 20, 1.0
# Processor time between two checks below which nothing was computed. A check itself takes far less.
IDLE_SECONDS = 0.01
ENDED = b"stopped at once; the last checkpoint is kept\n"
STALLED = (
    b"error: The computation has stalled: for 20 seconds no thread of the process has run. XLA does this "
    b"when memory runs out in one of its threads. Check the memory limits (ulimit -v, or those of the "
    b"container), use a smaller network, fewer --environments or a smaller --replay.capacity, and continue "
    b"or start again. The last checkpoint is kept.\n"
)


class Sentinel:
    """Call ``heard`` at every signal. End the process at a deadline, or when a computation stalls."""

    def __init__(self) -> None:
        self.heard: Callable[[], None] = self.end_soon
        """Called in the sentinel's thread at every signal that asks the process to end and has a handler."""
        self._deadline: float | None = None
        self._computing = 0
        self._over = False
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._thread = threading.Thread(target=self._watch, name="sentinel", daemon=True)

    def end_soon(self) -> None:
        """End the process in a few seconds, unless it ends by itself or :meth:`go_on` is called before."""
        if self._deadline is None:
            self._deadline = time.monotonic() + GRACE

    def answered(self) -> None:
        """Extend the deadline: the main thread has handled the signal too, and closes what is open."""
        self._deadline = time.monotonic() + LONGER_GRACE

    def go_on(self) -> None:
        self._deadline = None

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """Mark a block in which the main thread waits for XLA only."""
        self._computing += 1
        try:
            yield
        finally:
            self._computing -= 1

    @contextlib.contextmanager
    def on_duty(self) -> Iterator[None]:
        """Watch the process inside this block. Only for the main thread of a costate process."""
        before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        self._thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            self._over = True
            os.write(self._write, b"\0")
            self._thread.join()
            os.close(self._read)
            os.close(self._write)

    def _watch(self) -> None:
        idle, spent = 0, time.process_time()
        while True:
            ready, _, _ = select.select([self._read], [], [], BETWEEN_LOOKS)
            if self._over:
                return
            if ready:
                for number in os.read(self._read, 512):
                    if number in ASKED_TO_END:
                        self.heard()
                continue
            if self._deadline is not None and time.monotonic() >= self._deadline:
                _end(ENDED, INTERRUPTED)
            now = time.process_time()
            still = self._computing > 0 and now - spent < IDLE_SECONDS and _all_asleep()
            idle, spent = (idle + 1 if still else 0), now
            if idle >= LOOKS:
                _end(STALLED, FAILED)


def _all_asleep() -> bool:
    """Return True if every other thread of the process waits for something other than a core or a disk.

    Return False if that cannot be determined.
    """
    own = threading.get_native_id()
    tasks = pathlib.Path("/proc/self/task")
    try:
        states = [_state(task / "stat") for task in tasks.iterdir() if task.name != str(own)]
    except OSError:
        # Not Linux, or a thread has just ended.
        return False
    return all(state == "S" for state in states)


def _state(stat: pathlib.Path) -> str:
    # The state follows the name, which is in parentheses and may contain anything.
    return stat.read_text().rpartition(")")[2].split()[0]


def _end(message: bytes, code: int) -> NoReturn:
    """End the process without the main thread.

    Files on disk are intact, since they are renamed when complete.
    """
    with contextlib.suppress(OSError):
        # Not print(): the main thread may hold the stream's lock.
        os.write(2, message)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(code)


_current: Sentinel | None = None


def sentinel() -> Sentinel | None:
    """Return the sentinel on duty; None in other programs, which handle signals in their own way."""
    return _current


def _off_duty_after_fork() -> None:
    """Forget the sentinel in a forked process.

    Its thread does not exist there, and signals are not meant for it.
    """
    global _current
    if _current is not None:
        _current = None
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_off_duty_after_fork)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """Run a sentinel inside this block.

    Does nothing if one is running already, or outside of the main thread.
    """
    global _current
    if _current is not None or threading.current_thread() is not threading.main_thread():
        yield
        return
    guard = Sentinel()
    with guard.on_duty():
        _current = guard
        try:
            yield
        finally:
            _current = None


@contextlib.contextmanager
def computing() -> Iterator[None]:
    """End the process with a message if the computation inside this block stalls."""
    guard = sentinel()
    with contextlib.nullcontext() if guard is None else guard.computing():
        yield
