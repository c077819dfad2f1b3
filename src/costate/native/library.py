"""Builds the C files of this folder for the processor at hand, once, and makes them known to XLA.

A wheel with machine code would have to be made for every processor, or for the oldest. A C compiler is found on most machines that train; where there
is none, or where it fails, the same loops are left to XLA, and :func:`state` says why.
"""

import ctypes
import dataclasses
import functools
import hashlib
import os
import pathlib
import platform
import shlex
import shutil
import subprocess
import tempfile

import jax

SWITCH = "COSTATE_NATIVE"
"""Environment variable: 0 leaves everything to XLA."""
SOURCE = pathlib.Path(__file__).with_name("gru.c")
FUNCTIONS = ("costate_gru_read", "costate_gru_retrace", "costate_gru_gradients")
# For this processor, and with no licence to change the order of sums.
FLAGS = ("-std=gnu11", "-O3", "-march=native", "-shared", "-fPIC")
PATIENCE = 60.0


@dataclasses.dataclass(frozen=True)
class Native:
    """Whether there is machine code of our own."""

    available: bool
    why: str
    """What was made and by which compiler, or why it was not."""

    def __str__(self) -> str:
        return f"{'in C' if self.available else 'by XLA'} ({self.why})"


@functools.cache
def state() -> Native:
    """Build and load on the first call in a process, in well under a second; later processes find what the first one built."""
    if os.environ.get(SWITCH, "") == "0":
        return Native(False, f"switched off by {SWITCH}=0")
    compiler = find_compiler()
    if compiler is None:
        return Native(False, "no C compiler was found (cc, gcc or clang, or the one that CC names)")
    name = pathlib.Path(compiler[0]).name
    try:
        library = _built(compiler)
        try:
            _load(library)
        except OSError:
            # A file that something else has damaged.
            library.unlink(missing_ok=True)
            _load(_built(compiler))
    except (OSError, subprocess.SubprocessError, AttributeError) as error:
        return Native(False, f"{name} could not make it: {_explain(error)}")
    return Native(True, f"{library.name}, made by {name}")


def find_compiler() -> tuple[str, ...] | None:
    """The command of a C compiler, with what CC says beside its name."""
    wanted = [shlex.split(os.environ["CC"])] if os.environ.get("CC") else [["cc"], ["gcc"], ["clang"]]
    for name, *options in filter(None, wanted):
        found = shutil.which(name)
        if found is not None:
            return found, *options
    return None


def _built(compiler: tuple[str, ...]) -> pathlib.Path:
    """The library, from the cache if it has been built before from the same source, by the same compiler, for the same processor."""
    folder = cache_folder()
    path = folder / f"{SOURCE.stem}-{_fingerprint(compiler)}.so"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # Under a name of its own and then renamed: several processes may build at once, and none must load half of it.
        with tempfile.TemporaryDirectory(dir=folder) as place:
            made = pathlib.Path(place) / path.name
            command = [*compiler, *FLAGS, f"-I{jax.ffi.include_dir()}", str(SOURCE), "-o", str(made)]
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=PATIENCE)
            os.replace(made, path)
    return path


def cache_folder() -> pathlib.Path:
    """In the user's cache; a user without a home has one for each process."""
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (pathlib.Path(base) if base else pathlib.Path.home() / ".cache") / "costate" / "native"
    except RuntimeError:
        return pathlib.Path(tempfile.mkdtemp(prefix="costate-native-"))


def _fingerprint(compiler: tuple[str, ...]) -> str:
    """Of all that decides what is built: a home may be shared by machines with other processors and compilers."""
    real = pathlib.Path(compiler[0]).resolve()
    parts = [SOURCE.read_text(), *compiler, str(real), str(real.stat().st_mtime_ns), *FLAGS, jax.__version__, platform.machine(), _processor()]
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
    said = getattr(error, "stderr", None) or str(error)
    return said.strip().splitlines()[0] if said.strip() else type(error).__name__
