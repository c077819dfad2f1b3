"""What is asked of JAX before it starts: one CPU device per core, and compiled programs that are kept for the next time."""

import contextlib
import os
import pathlib
from typing import Any

import jax

from costate.training.programs import UNCACHEABLE


def prepare_jax() -> None:
    """One device per core and a compilation cache, unless the user has chosen otherwise; the first is too late once JAX is in use."""
    one_device_per_core()
    keep_compiled_programs()


def one_device_per_core() -> None:
    """The learner shards its minibatches over devices, and by default a CPU is a single one."""
    chosen = _setting(
        "jax_num_cpu_devices"
    ) != -1 or "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen:
        # Where JAX has started already, in a notebook or in a user's program, the learner runs on what there is.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def keep_compiled_programs() -> None:
    """Compiling the update takes seconds; reading it back takes a fraction of one."""
    if _setting("jax_compilation_cache_dir") is None and cache_directory() is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache_directory()))
        if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
            # Small programs too: a dozen that take a tenth of a second each add up.
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def cache_directory() -> pathlib.Path | None:
    """Where the user's cached programs are; None for a user without a home."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "costate" / "compiled"
    except RuntimeError:
        return None


def forget_uncacheable() -> None:
    """Drop from our cache the programs that no other process can use; otherwise every run would leave one behind."""
    folder = cache_directory()
    if folder is not None and _setting("jax_compilation_cache_dir") == str(folder):
        for entry in folder.glob(f"jit_{UNCACHEABLE}*"):
            entry.unlink(missing_ok=True)


def _setting(name: str) -> Any:
    """A setting of JAX, whose attributes are made at run time and so are unknown to type checkers."""
    return getattr(jax.config, name)
