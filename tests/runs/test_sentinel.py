"""Signals and failed allocations while the main thread runs no Python, as inside a compiled program."""

import signal
import subprocess
import sys
import threading
import time

import pytest

from costate._base.out_of_memory import out_of_memory

PATIENCE = 60
# A mutex that is locked twice. The wait for it is in C, never ends, and no signal interrupts it, as when XLA
# has lost a buffer.
START = """
import ctypes, os, signal, sys, threading, time
from costate.runs import sentinel
from costate.runs.interrupts import signals_as_interrupts, stop_requests
# Restored, because a shell that runs the tests in the background may ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)
sentinel.GRACE, sentinel.LOOKS, sentinel.BETWEEN_LOOKS = 0.5, 5, 0.1
mutex = ctypes.create_string_buffer(64)
def stuck():
    print("stuck", flush=True)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
    ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""


class Victim:
    """A program that prints when it is stuck."""

    def __init__(self, program: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", START + program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        # A bug must not block the tests.
        self._limit = threading.Timer(PATIENCE, self._process.kill)
        self._limit.start()
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "stuck\n"
        # Between this output and the mutex Python could still handle a signal.
        time.sleep(0.3)

    def strike(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def next_words(self) -> str:
        assert self._process.stderr is not None
        return next(line for line in iter(self._process.stderr.readline, "") if line.strip())

    def end(self) -> tuple[int, str]:
        """Exit code and what was said beside what was read already."""
        _, errors = self._process.communicate()
        self._limit.cancel()
        return self._process.returncode, errors


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program_that_cannot_answer_it(number):
    victim = Victim("with signals_as_interrupts():\n    stuck()")
    victim.strike(number)
    assert victim.end() == (130, "stopped at once; the last checkpoint is kept\n")


def test_a_request_to_stop_is_answered_at_once_and_a_second_one_ends_the_program():
    victim = Victim("with signals_as_interrupts(), stop_requests(b'heard\\n'):\n    stuck()")
    victim.strike(signal.SIGINT)
    assert victim.next_words() == "heard\n"
    victim.strike(signal.SIGINT)
    assert victim.end() == (130, "stopped at once; the last checkpoint is kept\n")


def test_one_request_suffices_where_there_is_nothing_to_save():
    """For example while it compiles."""
    victim = Victim(
        "with signals_as_interrupts(), stop_requests(b'heard\\n') as stop, stop.nothing_to_save():\n    "
        "stuck()"
    )
    victim.strike(signal.SIGTERM)
    assert victim.end() == (130, "heard\nstopped at once; the last checkpoint is kept\n")


def test_a_program_that_answers_in_time_ends_as_it_wants():
    """Closing what is open takes longer than the time that it had to answer."""
    victim = Victim("""
with signals_as_interrupts(), stop_requests(b'heard\\n') as stop:
    with stop.nothing_to_save():
        print("stuck", flush=True)
        while not stop.asked:
            time.sleep(0.01)
    time.sleep(1.0)
    os.write(2, b"saved\\n")
""")
    victim.strike(signal.SIGTERM)
    assert victim.end() == (0, "heard\nsaved\n")


def test_a_computation_that_can_never_end_ends_the_program_with_a_reason():
    code, said = Victim("with signals_as_interrupts(), sentinel.computing():\n    stuck()").end()
    assert code == 1
    assert "The computation has stalled" in said
    assert "ulimit -v" in said


def test_a_computation_that_goes_on_is_left_alone_and_so_is_whoever_waits_for_something_else():
    """Each part takes a second, twice the test's stall limit.

    First a thread computes, then one waits for something else, such as an environment.
    """
    done = Victim("""
def compute():
    ended = time.monotonic() + 1.0
    while time.monotonic() < ended:
        sum(range(1000))
with signals_as_interrupts():
    with sentinel.computing():
        print("stuck", flush=True)
        thread = threading.Thread(target=compute)
        thread.start()
        thread.join()
    time.sleep(1.0)
""").end()
    assert done == (0, "")


class JaxRuntimeError(RuntimeError):
    """By its name one of JAX."""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), "Memory ran out. Use a smaller --hidden-size"),
        (
            JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 12 bytes."),
            "ran out in a compiled program (RESOURCE_EXHAUSTED",
        ),
        (
            JaxRuntimeError("INTERNAL: Error dispatching computation: Out of memory allocating 12 bytes."),
            "Error dispatching",
        ),
    ],
)
def test_an_allocation_that_failed_is_explained(error, said):
    assert said in str(out_of_memory(error))


def test_other_errors_are_not_about_memory():
    assert out_of_memory(JaxRuntimeError("INVALID_ARGUMENT: shapes")) is None
    assert out_of_memory(ValueError("RESOURCE_EXHAUSTED")) is None


def test_a_signal_to_a_forked_process_does_not_end_the_one_that_it_was_forked_from():
    """Environments fork such processes. Both would write to the same pipe."""
    done = Victim("""
print("stuck", flush=True)
with signals_as_interrupts():
    child = os.fork()
    if child == 0:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10.0)
        finally:
            os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7
    time.sleep(1.0)
""").end()
    assert done == (0, "")
