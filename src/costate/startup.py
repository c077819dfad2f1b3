"""What is asked of JAX before it starts: one CPU device per core, and compiled programs that are kept for the next time."""

import contextlib
import os
import pathlib
from typing import Any

import jax

# Programs that contain the address of a simulator are different in every process. They carry this name, so that they can be told from those
# that are worth keeping.
UNCACHEABLE = "with_simulator"


def prepare_jax() -> None:
    """One device per core and a compilation cache, unless the user has chosen otherwise; the first is too late once JAX is in use."""
    one_device_per_core()
    keep_compiled_programs()


def one_device_per_core() -> None:
    """The learner shards its minibatches over devices, and by default a CPU is a single one."""
    chosen = _setting("jax_num_cpu_devices") != -1 or "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen:
        # Where JAX has started already, in a notebook or in a user's program, the learner runs on what there is.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def keep_compiled_programs() -> None:
    """Compiling the update takes seconds; reading it back takes a fraction of one."""
    if _setting("jax_compilation_cache_dir") is None:
        jax.config.update("jax_compilation_cache_dir", str(cache_directory()))
        # Small programs too: a dozen that take a tenth of a second each are half of what a warm start takes.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def cache_directory() -> pathlib.Path:
    """Where the user's cached programs are."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "costate" / "compiled"


def forget_uncacheable() -> None:
    """Drop from our cache the programs that no other process can use; otherwise every run would leave one behind."""
    if _setting("jax_compilation_cache_dir") == str(cache_directory()):
        for entry in cache_directory().glob(f"jit_{UNCACHEABLE}*"):
            entry.unlink(missing_ok=True)


def _setting(name: str) -> Any:
    """A setting of JAX, whose attributes are made at run time and so are unknown to type checkers."""
    return getattr(jax.config, name)
