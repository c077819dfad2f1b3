"""Builds the C file of this folder for the processor at hand, once, and makes it known to XLA.

A wheel with machine code would have to be made for every processor, or for the oldest. A C compiler is found on most machines that train; where there
is none, or where it fails, the same loops are left to XLA, and :func:`state` says why.
"""

import contextlib
import ctypes
import dataclasses
import functools
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import shlex
import shutil
import stat
import subprocess
import tempfile

import jax

SWITCH = "COSTATE_NATIVE"
"""Environment variable: 0 leaves everything to XLA."""
SOURCE = pathlib.Path(__file__).with_name("gru.c")
FUNCTIONS = ("costate_gru_read", "costate_gru_retrace", "costate_gru_gradients")
# For this processor, and with no licence to change the order of sums, whatever CC says beside the compiler's name.
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fno-fast-math", "-shared", "-fPIC")
PATIENCE = 30.0


@dataclasses.dataclass(frozen=True)
class Native:
    """Whether there is machine code of our own."""

    library: str | None
    """Name of what was built, which changes with everything that decides about its arithmetic; None if there is none."""
    why: str
    """By which compiler it was made, or why it was not."""

    @property
    def available(self) -> bool:
        return self.library is not None

    def __str__(self) -> str:
        return f"in C ({self.library}, {self.why})" if self.available else f"by XLA ({self.why})"


@functools.cache
def state() -> Native:
    """Build and load on the first call in a process, in well under a second; later processes find what the first one built."""
    if os.environ.get(SWITCH, "") == "0":
        return Native(None, f"switched off by {SWITCH}=0")
    try:
        compiler = find_compiler()
        if compiler is None:
            return Native(None, "no C compiler was found (cc, gcc or clang, or the one that CC names)")
        return Native(_build_and_load(compiler), f"made by {pathlib.Path(compiler[0]).name}")
    # Whatever a compiler, a file system or another version of JAX may do: without it everything works too, and the reason is told.
    except Exception as error:
        return Native(None, f"it could not be made: {_explain(error)}")


def find_compiler() -> tuple[str, ...] | None:
    """The command of a C compiler, with what CC says beside its name."""
    wanted = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else [["cc"], ["gcc"], ["clang"]]
    for name, *options in filter(None, wanted):
        found = shutil.which(name)
        if found is not None:
            return found, *options
    return None


def _build_and_load(compiler: tuple[str, ...]) -> str:
    """From the user's cache; where that cannot be used, from a folder that is gone as soon as the library is loaded."""
    name = f"{SOURCE.stem}-{_fingerprint(compiler)}"
    folder = cache_folder()
    if folder is not None:
        path = folder / f"{name}.so"
        try:
            if not path.exists():
                _build(compiler, path)
            _load(path)
            return name
        except OSError:
            # A home that cannot be written or run from, or a file that something has damaged: the next process makes it anew.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="costate-") as place:
        path = pathlib.Path(place) / f"{name}.so"
        _build(compiler, path)
        _load(path)
    return name


def cache_folder() -> pathlib.Path | None:
    """In the user's cache; None for a user without a home, and where somebody else could put a library for us to load."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        folder = (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "costate" / "native"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.stat()
    except (RuntimeError, OSError):
        return None
    writable_by_others = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return None if writable_by_others or status.st_uid != os.getuid() else folder


def _build(compiler: tuple[str, ...], path: pathlib.Path) -> None:
    # Under a name of its own and then renamed: several processes may build at once, and none must load half of it.
    with tempfile.TemporaryDirectory(dir=path.parent) as place:
        made = pathlib.Path(place) / path.name
        command = [*compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", str(SOURCE), "-o", str(made)]
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
        )
        os.replace(made, path)


def _fingerprint(compiler: tuple[str, ...]) -> str:
    """Of all that decides what is built: a home may be shared by machines with other processors and compilers."""
    real = pathlib.Path(compiler[0]).resolve()
    versions = (jax.__version__, importlib.metadata.version("jaxlib"), str(real.stat().st_mtime_ns))
    parts = [SOURCE.read_text(), *compiler, str(real), *versions, *FLAGS, platform.machine(), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """What the processor can do, as Linux says it; its name elsewhere."""
    description = pathlib.Path("/proc/cpuinfo")
    lines = description.read_text().splitlines() if description.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _load(path: pathlib.Path) -> None:
    library = ctypes.CDLL(str(path))
    for name in FUNCTIONS:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")


def _explain(error: Exception) -> str:
    """One line: of a compiler the first that speaks of an error, if there is one."""
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    return next(
        (line for line in lines if "error" in line.lower()), lines[0] if lines else type(error).__name__
    )
