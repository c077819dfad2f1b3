"""View a run while it trains, in a separate process that uses idle processor time and ends with training."""

import contextlib
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

from costate._base.lean import this_process_is_ours
from costate._base.streams import make_writable
from costate.config.run_config import RunConfig
from costate.runs.interrupts import stop_requests
from costate.runs.run_directory import CONFIG_FILE, open_run
from costate.show.requirements import require
from costate.show.settings import ViewConfig, check_port
from costate.trained.trained import shown_steps

# For systems without an idle scheduling class.
NICENESS = 19
SECONDS_TO_CLOSE = 5.0
# Fewer than in a separate view, because training needs the processor.
FRAMES_PER_SECOND = 12.0


def check_watchable(config: RunConfig, port: int) -> None:
    """Raise before training starts if the run could not be viewed."""
    check_port(port)
    require("--live", "viser", "mujoco")
    config.task_record.visible().close()


@contextlib.contextmanager
def watched(run: pathlib.Path, port: int, resumed: bool, say: Callable[[str], None]) -> Iterator[None]:
    """While the context is open, show the run that is training in the browser."""
    # A run that is about to be replaced must not be mistaken for the new one.
    since = 0.0 if resumed else time.time()
    # It gets its own process group, so that Ctrl-C stops training alone. It does not get its own session, in
    # which niceness would have no effect on Linux.
    command = [sys.executable, "-m", "costate.show.live", str(run), str(port), str(os.getpid()), str(since)]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, process_group=0
    )
    assert process.stdout is not None
    lines = process.stdout

    def listen() -> None:
        for line in lines:
            say(line.rstrip())

    listener = threading.Thread(target=listen, daemon=True)
    listener.start()
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(SECONDS_TO_CLOSE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        listener.join(SECONDS_TO_CLOSE)
        lines.close()


def serve_while_training(run: pathlib.Path, port: int, parent: int, since: float) -> None:
    """Serve the view of a run that was started at ``since`` or later, from its first checkpoint on.

    Stop when the process ``parent`` ends.
    """
    _use_idle_time_only()
    with stop_requests(b"") as stop:

        def over() -> bool:
            return stop.asked or os.getppid() != parent

        while not _is_ready(run, since):
            if over():
                return
            time.sleep(0.2)
        # Imported only now, because importing takes seconds that training needs at its start.
        from costate.show.view import view

        view(
            [open_run(run)],
            ViewConfig(port=port, fps=FRAMES_PER_SECOND),
            lambda line: print(line, flush=True),
            over,
        )


def _use_idle_time_only() -> None:
    """Run only when a processor is idle, because training often waits for its slowest core."""
    try:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    except (AttributeError, OSError):
        with contextlib.suppress(OSError):
            os.nice(NICENESS)


def _is_ready(run: pathlib.Path, since: float) -> bool:
    try:
        # Some file systems store times in whole seconds.
        return (run / CONFIG_FILE).stat().st_mtime >= int(since) and bool(shown_steps(open_run(run)))
    except OSError:
        return False


if __name__ == "__main__":
    this_process_is_ours()
    make_writable()
    serve_while_training(pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
