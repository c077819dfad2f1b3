"""Files that are either whole or absent: written under a temporary name, flushed to disk, then renamed, and the new name flushed too.

Nothing is written through a symbolic link, and nothing is replaced or removed that could be somebody else's: a file replaces only a plain file of its
name, a folder only what its caller recognises, and temporary names are ones that nothing had.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import pathlib
import shutil
import stat
from collections.abc import Callable, Iterator
from typing import IO

from costate._base.errors import StorageError

PARTIAL, OLD = ".partial", ".old"
"""Endings of names beside a file or folder while it is written, and while it is replaced."""
# Characters; who holds a lock is said in fewer.
LONGEST_NOTE = 4096


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Replace the file ``path`` by ``content``, or leave it as it was."""
    replace_file(path, lambda temporary: write_through(temporary, content))


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


def output_folder(path: pathlib.Path) -> pathlib.Path:
    """Make the folder that a command writes into, or take the one that is there; raises if a file has its name."""
    _check_folder(path)
    with explained_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def _check_folder(path: pathlib.Path) -> None:
    """Raise if a file has the name of a folder that is needed, or of one above it."""
    blocking = next((place for place in (path, *path.parents) if place.exists() or place.is_symlink()), None)
    if blocking is not None and not blocking.is_dir():
        what = "a symbolic link to nothing" if blocking.is_symlink() else "a file"
        raise StorageError(
            f"{path} cannot be written into: {blocking} is {what}, but a folder is needed. Choose another folder, or move it away."
        )


def output_file(path: pathlib.Path, name: str) -> pathlib.Path:
    """The file that a command writes when it is told to write to ``path``: in an existing folder one of its own ``name``, else ``path`` itself."""
    file = path / name if path.is_dir() else path
    check_replaceable(file)
    return file


def check_replaceable(path: pathlib.Path) -> None:
    """Raise unless a file can be written to ``path`` without loss: nothing is there, or a plain file, which it replaces."""
    try:
        kind = path.lstat().st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        _check_folder(path.parent)
        raise StorageError(
            f"Nothing was written to {path}: {error.strerror or error}. Choose another file."
        ) from error
    if stat.S_ISREG(kind):
        return
    if stat.S_ISDIR(kind):
        raise StorageError(
            f"Nothing was written to {path}: it is a folder, and a file never replaces a folder. Choose another name."
        )
    if stat.S_ISLNK(kind):
        raise StorageError(
            f"Nothing was written to {path}: it is a symbolic link to {os.readlink(path)}, and no file is written through a link. "
            "Remove the link, or name the file that it points to."
        )
    raise StorageError(
        f"Nothing was written to {path}: it is a device, a pipe or a socket, but only a plain file is replaced. Choose another name."
    )


def replace_file(path: pathlib.Path, write: Callable[[pathlib.Path], None]) -> None:
    """Let ``write`` fill a new file beside ``path``, then give it that name; on any error nothing remains of it."""
    check_replaceable(path)
    with explained_errors(path):
        temporary = _claim(
            path, lambda name: os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        )
        try:
            write(temporary)
            # Once more: writing may have taken minutes.
            check_replaceable(path)
            os.replace(temporary, path)
            flush_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def replace_folder(
    path: pathlib.Path,
    write: Callable[[pathlib.Path], None],
    check: Callable[[pathlib.Path], None],
    discard: Callable[[pathlib.Path], None],
) -> None:
    """Let ``write`` fill a new folder beside ``path``, then give it that name; on any error nothing remains of it.

    Where something has the name, ``check`` raises if it must stay; otherwise it is renamed first and discarded last, so that a process that is
    killed leaves the old folder or the new one.
    """
    old = path.with_name(f".{path.name}{OLD}")
    _check_existing(path, check)
    with explained_errors(path):
        make_folders(path.parent)
        temporary = _claim(path, os.mkdir)
        try:
            write(temporary)
            # The names of the files in it; what is in them was flushed when they were written.
            flush_folder(temporary)
            # Once more: writing takes a while.
            if _check_existing(path, check):
                # A folder cannot be renamed onto another; until the new one has its name, the old one can be brought back.
                if _check_existing(old, check):
                    discard(old)
                os.replace(path, old)
            os.replace(temporary, path)
            # Before the old one goes: after a power failure at least one of them must be found.
            flush_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                restore(path)
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        if _check_existing(old, check):
            discard(old)


def _check_existing(path: pathlib.Path, check: Callable[[pathlib.Path], None]) -> bool:
    """Whether something has this name; raises what ``check`` says if it must stay."""
    if not path.exists() and not path.is_symlink():
        return False
    check(path)
    return True


def _claim(path: pathlib.Path, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Make something new beside ``path``, under a name that nothing has."""
    for number in itertools.count(1):
        temporary = path.with_name(f".{path.name}{PARTIAL}{f'-{number}' if number > 1 else ''}")
        with contextlib.suppress(FileExistsError):
            make(temporary)
            return temporary
    raise AssertionError("there are always more names")


def restore(path: pathlib.Path) -> None:
    """Bring a folder back that was cut off while it was being replaced: it was moved aside, and nothing had its name yet."""
    old = path.with_name(f".{path.name}{OLD}")
    if old.is_dir() and not old.is_symlink() and not path.exists() and not path.is_symlink():
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


def _in_place(name: str, flags: int) -> int:
    """Open a file that is written where it is, as an ``opener``: never through a symbolic link, and nothing but a plain file."""
    path = pathlib.Path(name)
    try:
        # Without waiting: a pipe that nobody reads would wait for ever.
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            check_replaceable(path)
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise StorageError(f"{path} is not a plain file, so nothing is written to it. Move it away.")
    return descriptor


def open_to_append(path: pathlib.Path) -> IO[bytes]:
    """Open a file to write at its end, never through a symbolic link."""
    with explained_errors(path):
        return open(path, "ab", opener=_in_place)


def try_lock(path: pathlib.Path) -> IO[str] | None:
    """Lock a file against other processes; None if one of them has it. The lock goes with the returned file, or with the process, however it ends."""
    with explained_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path, "a+", errors="replace", opener=_in_place)  # noqa: SIM115  (held by the caller)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except OSError:
        # A file system that knows no locks. Whoever works on one has to see to it that two processes do not; refusing would leave nothing to work on.
        return lock
    return lock


def note_holder(lock: IO[str], note: str, is_note: Callable[[str], bool]) -> None:
    """Write into a lock who holds it; raises if something else than such a note is in the file, which is then somebody's and stays as it is."""
    lock.seek(0)
    before = lock.read(LONGEST_NOTE)
    if before and not is_note(before):
        raise StorageError(
            f"{lock.name} should be a lock, but it holds something that costate did not write, so it was not touched. "
            "Move it away and do the same again."
        )
    lock.truncate(0)
    lock.seek(0)
    lock.write(note)
    lock.flush()


def remove_file(path: pathlib.Path) -> None:
    """Delete a file, if it is there; raises if a folder has its name. Of a symbolic link only the link goes."""
    if path.is_dir() and not path.is_symlink():
        raise StorageError(
            f"{path} is a folder where a file of costate should be, so it was not removed. Move it away and do the same again."
        )
    with explained_errors(path):
        path.unlink(missing_ok=True)


def remove_folder(path: pathlib.Path) -> None:
    """Delete a folder with all that is in it. For folders of which the caller knows that costate wrote everything in them."""
    with explained_errors(path):
        shutil.rmtree(path)
