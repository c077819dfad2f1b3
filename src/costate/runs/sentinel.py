"""A thread that hears what the main thread cannot, while that is inside of a compiled program or of a compiler.

Python runs its signal handlers in the main thread, between two of its instructions. A program of XLA runs for seconds without one, and after
a failed allocation XLA has been seen to wait for ever. The number of a signal is written to a pipe at once, though, and this thread reads it.
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
"""What a shell reports for a program that Ctrl-C ended."""
FAILED = 1
"""Not what a worker of a sweep says of a run that failed: whoever started it tries again, as for one that was killed."""
# Seconds in which the main thread has to answer a signal that is to end it, and then to close what is open.
GRACE, LONGER_GRACE = 5.0, 30.0
ASKED_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# Looks, one a second, at all of which nothing in the process moves, after which what is computed will never be.
LOOKS, BETWEEN_LOOKS = 20, 1.0
# Processor time between two looks below which nothing was computed; what looks themselves take is far less.
IDLE_SECONDS = 0.01
ENDED = b"stopped at once; the last checkpoint is kept\n"
STALLED = (
    b"error: The computation has stopped without an error: for 20 seconds no thread of the process has done anything. XLA does so when memory "
    b"runs out in one of its threads. Check the limits (ulimit -v, the container's), use a smaller network, fewer --environments or a smaller "
    b"--replay.capacity, and continue or start again; the last checkpoint is kept.\n"
)


class Sentinel:
    """Tells ``heard`` of every signal; ends the process when a deadline passes, or when a computation stalls."""

    def __init__(self) -> None:
        self.heard: Callable[[], None] = self.end_soon
        """Called in the sentinel's thread for every signal that asks to end and has a handler."""
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
        """The main thread has heard it too, and closes what is open."""
        self._deadline = time.monotonic() + LONGER_GRACE

    def go_on(self) -> None:
        self._deadline = None

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """While open, the main thread waits for nothing but XLA."""
        self._computing += 1
        try:
            yield
        finally:
            self._computing -= 1

    @contextlib.contextmanager
    def on_duty(self) -> Iterator[None]:
        """While open, it watches. Only for the main thread of a process that is ours."""
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
    """Whether every other thread of the process waits for something that is neither a core nor a disk; False where that cannot be told."""
    own = threading.get_native_id()
    tasks = pathlib.Path("/proc/self/task")
    try:
        states = [_state(task / "stat") for task in tasks.iterdir() if task.name != str(own)]
    except OSError:
        # Not Linux, or a thread has just ended.
        return False
    return all(state == "S" for state in states)


def _state(stat: pathlib.Path) -> str:
    # After the name, which is in parentheses and may hold anything.
    return stat.read_text().rpartition(")")[2].split()[0]


def _end(message: bytes, code: int) -> NoReturn:
    """End without the main thread. What is on disk is whole, since files are renamed when they are."""
    with contextlib.suppress(OSError):
        # Not print: the main thread may hold the stream.
        os.write(2, message)
    with contextlib.suppress(Exception):
        sys.stdout.flush()
    os._exit(code)


_current: Sentinel | None = None


def sentinel() -> Sentinel | None:
    """The one on duty; None in a program that is not ours, which has its own way with signals."""
    return _current


def _off_duty_after_fork() -> None:
    """In a process that was forked there is no such thread, and its signals are not those of this one."""
    global _current
    if _current is not None:
        _current = None
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_off_duty_after_fork)


@contextlib.contextmanager
def guarded() -> Iterator[None]:
    """While open, a sentinel is on duty; nothing changes if there is one already, or in another thread than the main one."""
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
    """While open, a computation that can never end is noticed, and ends the process with a reason."""
    guard = sentinel()
    with contextlib.nullcontext() if guard is None else guard.computing():
        yield
