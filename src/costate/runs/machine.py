"""Describe the machine that computed a run: versions and processor, so that numbers can be traced to it."""

import contextlib
import importlib.metadata
import os
import pathlib
import platform
import resource
import sys
from typing import Any

import jax

from costate.policies.cores.native.library import state as native_state

PACKAGES = ("costate", "jax", "jaxlib", "equinox", "optax", "envpool", "numpy", "safetensors")

# Settings of JAX that change what a program computes.
DECIDE_ARITHMETIC = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_disable_most_optimizations",
    "jax_threefry_partitionable",
)

# Parts of the description that affect the last bits of a run's numbers.
DECISIVE = ("versions", "processor", "cpu_features", "devices", "arithmetic")


def describe_machine() -> dict[str, Any]:
    return {
        "versions": versions(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _cpu_field("model name"),
        "cpu_features": _cpu_field("flags").split(),
        "cores": os.cpu_count(),
        "native": str(native_state()),
        "devices": [str(device) for device in jax.devices()],
        "arithmetic": {
            "XLA_FLAGS": os.environ.get("XLA_FLAGS", ""),
            "loops over time": native_state().library or "by XLA",
        }
        | {name: _plain(jax.config.values.get(name)) for name in DECIDE_ARITHMETIC},
    }


def versions() -> dict[str, str]:
    """Return the versions of the packages that affect numerical results."""
    return {name: _version(name) for name in PACKAGES}


def machine_changes(noted: dict[str, Any], now: dict[str, Any]) -> tuple[str, ...]:
    """Return sentences on every change that affects numerical results."""
    changes = []
    for name in DECISIVE:
        before, after = noted.get(name), now.get(name)
        if before is None or before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            changes += [
                f"{key} was {before.get(key)} and is {after.get(key)}"
                for key in sorted(before.keys() | after.keys())
                if before.get(key) != after.get(key)
            ]
        elif name == "cpu_features" and isinstance(before, list):
            had, has = set(map(str, before)), set(after or ())
            gone, new = sorted(had - has), sorted(has - had)
            changes.append(
                f"compared with the processor of the run, this one lacks {', '.join(gone) or 'nothing'} and "
                f"adds {', '.join(new) or 'nothing'}"
            )
        else:
            changes.append(f"{name} was {before} and is {after}")
    return tuple(changes)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def available_memory(root: pathlib.Path = pathlib.Path("/")) -> int:
    """Return the bytes that programs can still allocate.

    On Linux this is the available memory, elsewhere all that is installed. It is at most what the container,
    or the process itself (`ulimit -v`), may use.
    """
    return min(_memory_of_machine(root), _memory_of_container(root), _memory_of_process(root))


def _memory_of_machine(root: pathlib.Path) -> int:
    meminfo = root / "proc/meminfo"
    for line in meminfo.read_text().splitlines() if meminfo.exists() else ():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


# Files with the limit, the usage, and the statistics of a control group, and the entry of cached files that
# can be freed. There are two versions of the kernel's interface. A container sees its own group at the root.
CONTROL_GROUPS = (
    ("memory.max", "memory.current", "memory.stat", "inactive_file"),
    (
        "memory/memory.limit_in_bytes",
        "memory/memory.usage_in_bytes",
        "memory/memory.stat",
        "total_inactive_file",
    ),
)


def _memory_of_container(root: pathlib.Path) -> int:
    """Return the memory that is left of a container's limit; without a limit, more than any machine has."""
    left = sys.maxsize
    for limit, taken, details, cached in CONTROL_GROUPS:
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            allowed, used = (int((root / "sys/fs/cgroup" / name).read_text()) for name in (limit, taken))
            left = min(left, max(0, allowed - used + _field(root / "sys/fs/cgroup" / details, cached)))
    return left


def _memory_of_process(root: pathlib.Path) -> int:
    """Return the bytes left of the process's address space limit; without one, more than any machine has."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    taken = root / "proc/self/statm"
    if limit == resource.RLIM_INFINITY or not taken.exists():
        return sys.maxsize
    return max(0, limit - int(taken.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE"))


def _field(path: pathlib.Path, name: str) -> int:
    """Read a number from a file with a name and a number in every line; 0 if it is not there."""
    lines = (line.split() for line in path.read_text().splitlines()) if path.exists() else ()
    return next((int(number) for key, number in lines if key == name), 0)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _cpu_field(name: str) -> str:
    """Return a field of Linux's description of the first core; empty on other systems."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.exists() else ():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
