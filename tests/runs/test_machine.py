"""Available memory, from files as Linux and containers write them."""

import pathlib
import subprocess
import sys

import pytest

from costate.runs.machine import available_memory

GIGABYTE = 2**30


def written(root: pathlib.Path, files: dict[str, str]) -> pathlib.Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.fixture
def machine(tmp_path):
    """A machine with 8 GB available."""
    return written(tmp_path, {"proc/meminfo": f"MemTotal: {16 * 2**20} kB\nMemAvailable: {8 * 2**20} kB\n"})


def test_what_linux_says_is_available(machine):
    assert available_memory(machine) == 8 * GIGABYTE


@pytest.mark.parametrize(
    ("folder", "limit", "taken", "cached"),
    [
        ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ],
)
def test_a_container_has_no_more_than_it_is_allowed(machine, folder, limit, taken, cached):
    written(machine, {f"{folder}/{limit}": f"{3 * GIGABYTE}\n", f"{folder}/{taken}": f"{2 * GIGABYTE}\n"})
    assert available_memory(machine) == GIGABYTE
    # Cached files are freed when a program needs the memory.
    written(machine, {f"{folder}/memory.stat": f"anon 5\n{cached} {GIGABYTE}\n"})
    assert available_memory(machine) == 2 * GIGABYTE
    # A container over its limit, as while the kernel reclaims memory, has nothing left.
    written(machine, {f"{folder}/{taken}": f"{5 * GIGABYTE}\n"})
    assert available_memory(machine) == 0


def test_a_container_without_a_limit_has_what_the_machine_has(machine):
    written(
        machine,
        {
            "sys/fs/cgroup/memory.max": "max\n",
            "sys/fs/cgroup/memory.current": "1\n",
            "sys/fs/cgroup/memory.stat": "inactive_file 0\n",
        },
    )
    assert available_memory(machine) == 8 * GIGABYTE


def test_elsewhere_it_is_what_is_built_in(tmp_path):
    assert 0 < available_memory(tmp_path) < sys.maxsize


def test_a_process_has_no_more_than_it_is_allowed():
    """`ulimit -v` in the shell that started it; what it has taken already counts."""
    code = (
        "import resource; from costate.runs.machine import available_memory;"
        "taken = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize();"
        "resource.setrlimit(resource.RLIMIT_AS, (taken + 2**28, resource.RLIM_INFINITY));"
        "assert 2**27 < available_memory() <= 2**28, available_memory()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
