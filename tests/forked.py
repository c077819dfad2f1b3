"""Short-lived processes, forked from one that has imported everything, which saves two seconds each.

They share the hash seed and the addresses of their parent. Processes that share nothing are compared in
test_determinism.py.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Iterator, Sequence

# JAX may be imported before the fork, but not started. A child leaves the loop and ends like any program.
PARENT = """
import json, os, signal, sys
import costate.cli, costate.cli.commands.train, costate.training.loop
from costate._base.lean import this_process_is_ours
this_process_is_ours()
import costate.envs.engines.envpool

def give_up(number, frame):
    os.kill(child, signal.SIGKILL)
    os._exit(1)

signal.signal(signal.SIGALRM, give_up)
# A shell that runs the tests in the background may ignore it.
signal.signal(signal.SIGINT, signal.default_int_handler)

def become(job):
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    for descriptor, path in enumerate((os.devnull, job["stdout"], job["stderr"])):
        mode = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if descriptor else os.O_RDONLY
        os.dup2(os.open(path, mode), descriptor)
    sys.argv = ["-c", *job["arguments"]]

for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        break
    # A child does not inherit the alarm. A child that hangs must not hang the tests.
    signal.alarm(300)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    signal.alarm(0)
else:
    sys.exit()
become(job)
exec(compile(job["code"], "victim", "exec"), {"__name__": "__main__"})
"""


@dataclasses.dataclass(frozen=True)
class Forge:
    """Starts forked processes."""

    process: "subprocess.Popen[str]"
    folder: pathlib.Path

    def run(self, code: str, arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
        """Run ``python -c CODE ARGUMENTS…``, and return its result and output."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        stdout, stderr = self.folder / "stdout", self.folder / "stderr"
        job = {"code": code, "arguments": list(arguments), "stdout": str(stdout), "stderr": str(stderr)}
        self.process.stdin.write(json.dumps(job) + "\n")
        self.process.stdin.flush()
        exit_code = self.process.stdout.readline()
        assert exit_code, f"the process hung: {stdout.read_text()} {stderr.read_text()}"
        return subprocess.CompletedProcess(
            job["arguments"], int(exit_code), stdout.read_text(), stderr.read_text()
        )


@contextlib.contextmanager
def forge(folder: pathlib.Path) -> Iterator[Forge]:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=dict(os.environ),
    )
    with process:
        yield Forge(process, folder)
        assert process.stdin is not None
        process.stdin.close()
