"""Compile the C file of this folder for the processor at hand, once, and register it with XLA.

A wheel with machine code would have to be made for every processor, or for the oldest. Most machines that
train have a C compiler. Where there is none, or where it fails, XLA runs the same loops, and :func:`state`
says why.
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
# For this processor, and never with a changed order of sums, whatever options CC adds to the compiler's name.
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-fno-fast-math", "-shared", "-fPIC")
PATIENCE = 30.0


@dataclasses.dataclass(frozen=True)
class Native:
    """The state of the compiled loops: available, or why not."""

    library: str | None
    """Name of the library, which depends on everything that affects its arithmetic; None if there is none."""
    why: str
    """The compiler that built it, or why it was not built."""

    @property
    def available(self) -> bool:
        return self.library is not None

    def __str__(self) -> str:
        return f"in C ({self.library}, {self.why})" if self.available else f"by XLA ({self.why})"


@functools.cache
def state() -> Native:
    """Build and load on the first call in a process, in well under a second.

    Later processes reuse the library.
    """
    if os.environ.get(SWITCH, "") == "0":
        return Native(None, f"switched off by {SWITCH}=0")
    try:
        compiler = find_compiler()
        if compiler is None:
            return Native(None, "no C compiler was found (cc, gcc or clang, or the one that CC names)")
        return Native(_build_and_load(compiler), f"made by {pathlib.Path(compiler[0]).name}")
    # Catch whatever a compiler, a file system or another version of JAX may raise: everything works without
    # the library, and the reason is reported.
    except Exception as error:
        return Native(None, f"it could not be built: {_explain(error)}")


def find_compiler() -> tuple[str, ...] | None:
    """Return the command of a C compiler, with the options in CC."""
    wanted = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else [["cc"], ["gcc"], ["clang"]]
    for name, *options in filter(None, wanted):
        found = shutil.which(name)
        if found is not None:
            return found, *options
    return None


def _build_and_load(compiler: tuple[str, ...]) -> str:
    """Build in the user's cache, or in a temporary folder if the cache cannot be used; return the name."""
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
            # The folder cannot be written or executed from, or the file is damaged: the next process builds
            # it anew.
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="costate-") as place:
        path = pathlib.Path(place) / f"{name}.so"
        _build(compiler, path)
        _load(path)
    return name


def cache_folder() -> pathlib.Path | None:
    """Return a folder in the user's cache; None without a home, or where others could replace the library."""
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
    # Built under another name and then renamed: several processes may build at once, and none must load half
    # a file.
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
    """Hash all that affects the library, since machines with different processors may share a home."""
    real = pathlib.Path(compiler[0]).resolve()
    versions = (jax.__version__, importlib.metadata.version("jaxlib"), str(real.stat().st_mtime_ns))
    parts = [SOURCE.read_text(), *compiler, str(real), *versions, *FLAGS, platform.machine(), _processor()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _processor() -> str:
    """Return the processor's features on Linux, and its name elsewhere."""
    description = pathlib.Path("/proc/cpuinfo")
    lines = description.read_text().splitlines() if description.exists() else []
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.processor())


def _load(path: pathlib.Path) -> None:
    library = ctypes.CDLL(str(path))
    for name in FUNCTIONS:
        jax.ffi.register_ffi_target(name, jax.ffi.pycapsule(getattr(library, name)), platform="cpu")


def _explain(error: Exception) -> str:
    """Return one line of an error: the first of a compiler's output that mentions an error."""
    lines = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
    return next(
        (line for line in lines if "error" in line.lower()), lines[0] if lines else type(error).__name__
    )
