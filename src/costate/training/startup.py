"""Configure JAX before it starts: one CPU device per core, and a cache of compiled programs."""

import contextlib
import os
import pathlib
from typing import Any

import jax

from costate.training.programs import UNCACHEABLE


def prepare_jax() -> None:
    """Set one device per core and a compilation cache, unless the user has set them.

    The number of devices cannot be changed once JAX is in use.
    """
    one_device_per_core()
    keep_compiled_programs()


def one_device_per_core() -> None:
    """Make every core a device, because the learner shards minibatches over devices."""
    chosen = _setting(
        "jax_num_cpu_devices"
    ) != -1 or "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if not chosen:
        # If JAX is in use already, in a notebook or in a user's program, the learner uses the existing
        # devices.
        with contextlib.suppress(RuntimeError):
            jax.config.update("jax_num_cpu_devices", len(os.sched_getaffinity(0)))


def keep_compiled_programs() -> None:
    """Cache compiled programs. Compiling an update takes seconds, and reading it back a fraction of one."""
    if _setting("jax_compilation_cache_dir") is None and cache_directory() is not None:
        jax.config.update("jax_compilation_cache_dir", str(cache_directory()))
        if "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS" not in os.environ:
            # Small programs too: a dozen of a tenth of a second each add up.
            jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)


def cache_directory() -> pathlib.Path | None:
    """Return the folder of the user's cached programs; None for a user without a home directory."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "costate" / "compiled"
    except RuntimeError:
        return None


def forget_uncacheable() -> None:
    """Remove programs that no other process can use from our cache, which would grow with every run."""
    folder = cache_directory()
    if folder is not None and _setting("jax_compilation_cache_dir") == str(folder):
        for entry in folder.glob(f"jit_{UNCACHEABLE}*"):
            entry.unlink(missing_ok=True)


def _setting(name: str) -> Any:
    """Read a setting of JAX. Its attributes are made at run time, so type checkers do not know them."""
    return getattr(jax.config, name)
