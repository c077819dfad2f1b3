"""Files that are either whole or absent: written under a temporary name, flushed to disk, then renamed, and the new name flushed too."""

import contextlib
import errno
import fcntl
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator
from typing import IO

from costate._errors import StorageError


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Replace ``path`` by ``content``, or leave it as it was."""

    replace_atomically(path, lambda temporary: write_through(temporary, content))


def write_through(path: pathlib.Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: pathlib.Path) -> None:
    """Wait until the names in a folder are on the disk: a file that was flushed and renamed can still be lost with its name in a power failure."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # File systems that know no such thing, as some on a network, keep names in order themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def make_folders(path: pathlib.Path) -> None:
    """Make a folder and those above it that are missing, and wait until their names are on the disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        flush_folder(folder.parent)


def replace_atomically(path: pathlib.Path, write: Callable[[pathlib.Path], None]) -> None:
    """Let ``write`` make a file or a folder beside ``path``, then give it that name; on any error nothing remains of it."""
    temporary, old = path.with_name(f".{path.name}.partial"), path.with_name(f".{path.name}.old")
    with explained_errors(path):
        try:
            remove(temporary)
            write(temporary)
            if temporary.is_dir():
                # The names of the files in it; what is in them was flushed when they were written.
                flush_folder(temporary)
            if path.is_dir():
                # A folder cannot be renamed onto another; until the new one has its name, the old one can be brought back.
                remove(old)
                os.replace(path, old)
            os.replace(temporary, path)
            # Before the old one goes: after a power failure at least one of them must be found.
            flush_folder(path.parent)
            remove(old)
        except BaseException:
            with contextlib.suppress(OSError, StorageError):
                restore(path)
                remove(temporary)
            raise


def restore(path: pathlib.Path) -> None:
    """Bring a folder back that was cut off while it was being replaced: it was moved aside, and nothing had its name yet."""
    old = path.with_name(f".{path.name}.old")
    if old.exists() and not path.exists():
        os.replace(old, path)
        flush_folder(path.parent)


@contextlib.contextmanager
def explained_errors(path: pathlib.Path) -> Iterator[None]:
    """Turn an operating system's refusal to write (a full disk, no permission) into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Could not write {path}: {error.strerror or error}.{_free_space(path)} What was written before is kept. "
            "Free some space or fix the permissions and do the same again; a training run continues with `costate train --resume`."
        ) from error


def _free_space(path: pathlib.Path) -> str:
    existing = next((parent for parent in path.absolute().parents if parent.exists()), None)
    return f" {shutil.disk_usage(existing).free // 2**20} MiB are free there." if existing else ""


def try_lock(path: pathlib.Path) -> IO[str] | None:
    """Lock a file against other processes; None if one of them has it. The lock goes with the returned file, or with the process, however it ends."""
    with explained_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path, "a+")  # noqa: SIM115  (held by the caller)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except OSError:
        # A file system that knows no locks. Whoever works on one has to see to it that two processes do not; refusing would leave nothing to work on.
        return lock
    return lock


def remove(path: pathlib.Path) -> None:
    """Delete a file or a folder, if it is there."""
    with explained_errors(path):
        if path.is_dir():
            shutil.rmtree(path)
        elif path.exists():
            path.unlink()
