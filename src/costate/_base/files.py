"""Write files that are either whole or absent.

A file is written under a temporary name, flushed to disk and renamed, and its new name is flushed too.
Nothing is written through a symbolic link. Nothing is replaced or removed that could belong to somebody else:
a file replaces only a plain file of its name, a folder only one that its caller recognises, and temporary
names are ones that were free.
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
"""Suffixes of the temporary names beside a file or folder: while it is written, and while it is replaced."""
# In characters; a note about the holder of a lock is shorter.
LONGEST_NOTE = 4096


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Replace the file ``path`` by ``content``, or leave it as it was."""
    replace_file(path, lambda temporary: write_through(temporary, content))


def write_through(path: pathlib.Path, content: bytes) -> None:
    """Write a file and wait until it is on disk."""
    with open(path, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def flush_folder(folder: pathlib.Path) -> None:
    """Wait until the names in a folder are on disk.

    Without this, a file that was flushed and renamed can still be lost with its name in a power failure.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some file systems, such as network ones, cannot flush a folder; they keep names in order themselves.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


def make_folders(path: pathlib.Path) -> None:
    """Make a folder and its missing parents, and wait until their names are on disk."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    for folder in reversed(missing):
        flush_folder(folder.parent)


def output_folder(path: pathlib.Path) -> pathlib.Path:
    """Make the folder that a command writes into, if it does not exist. Raise if a file has its name."""
    _check_folder(path)
    with explained_errors(path):
        path.mkdir(parents=True, exist_ok=True)
    return path


def _check_folder(path: pathlib.Path) -> None:
    """Raise if a file has the name of a folder that is needed, or of one of its parents."""
    blocking = next((place for place in (path, *path.parents) if place.exists() or place.is_symlink()), None)
    if blocking is not None and not blocking.is_dir():
        what = "a symbolic link to nothing" if blocking.is_symlink() else "a file"
        raise StorageError(
            f"{path} cannot be written into: {blocking} is {what}, but a folder is needed. "
            "Choose another folder, or move it away."
        )


def output_file(path: pathlib.Path, name: str) -> pathlib.Path:
    """Return the file that a command writes when it is told to write to ``path``.

    In an existing folder this is a file called ``name``, otherwise ``path`` itself.
    """
    file = path / name if path.is_dir() else path
    check_replaceable(file)
    return file


def check_replaceable(path: pathlib.Path) -> None:
    """Raise unless a file can be written to ``path`` without loss: nothing is there, or a plain file."""
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
            f"Nothing was written to {path}: it is a folder, and a file never replaces a folder. Choose "
            "another name."
        )
    if stat.S_ISLNK(kind):
        raise StorageError(
            f"Nothing was written to {path}: it is a symbolic link to {os.readlink(path)}, and files are "
            "never "
            "written through links. Remove the link, or name the file that it points to."
        )
    raise StorageError(
        f"Nothing was written to {path}: it is a device, a pipe or a socket, but only a plain file is "
        "replaced. Choose another name."
    )


def check_of_costate(path: pathlib.Path, mark: str) -> None:
    """Raise unless a file can be written to ``path``: nothing is there, or a file that costate wrote before.

    For names that others use too, such as README.md. Every file of this name that costate writes contains
    ``mark``.
    """
    check_replaceable(path)
    with explained_errors(path):
        if path.exists() and mark.encode() not in path.read_bytes():
            raise StorageError(
                f"Nothing was written to {path}: costate did not write the file that is there. "
                "Move it away, or choose another folder."
            )


def replace_file(path: pathlib.Path, write: Callable[[pathlib.Path], None]) -> None:
    """Let ``write`` fill a new file beside ``path``, then rename it to ``path``.

    On any error nothing of it remains.
    """
    check_replaceable(path)
    with explained_errors(path):
        temporary = _claim(
            path, lambda name: os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        )
        try:
            write(temporary)
            # Check again: writing may have taken minutes.
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
    """Let ``write`` fill a new folder beside ``path``, then rename it to ``path``.

    On any error nothing of it remains.

    If something has the name already, ``check`` raises if it must stay. Otherwise it is renamed first and
    discarded last, so that a process that is killed leaves either the old folder or the new one.
    """
    old = path.with_name(f".{path.name}{OLD}")
    _check_existing(path, check)
    with explained_errors(path):
        make_folders(path.parent)
        temporary = _claim(path, os.mkdir)
        try:
            write(temporary)
            # Flushes the names of the files in it; their contents were flushed when they were written.
            flush_folder(temporary)
            # Check again: writing takes a while.
            if _check_existing(path, check):
                # A folder cannot be renamed onto another. Until the new one has its name, the old one can be
                # restored.
                if _check_existing(old, check):
                    discard(old)
                os.replace(path, old)
            os.replace(temporary, path)
            # Before the old one is removed: after a power failure at least one of them must exist.
            flush_folder(path.parent)
        except BaseException:
            with contextlib.suppress(OSError):
                restore(path)
                shutil.rmtree(temporary, ignore_errors=True)
            raise
        if _check_existing(old, check):
            discard(old)


def _check_existing(path: pathlib.Path, check: Callable[[pathlib.Path], None]) -> bool:
    """Return True if something has this name; raise by ``check`` if it must stay."""
    if not path.exists() and not path.is_symlink():
        return False
    check(path)
    return True


def _claim(path: pathlib.Path, make: Callable[[pathlib.Path], None]) -> pathlib.Path:
    """Let ``make`` create something beside ``path`` under a free name, and return that name."""
    for number in itertools.count(1):
        temporary = path.with_name(f".{path.name}{PARTIAL}{f'-{number}' if number > 1 else ''}")
        with contextlib.suppress(FileExistsError):
            make(temporary)
            return temporary
    raise AssertionError("there are always more names")


def restore(path: pathlib.Path) -> None:
    """Restore a folder whose replacement was interrupted.

    The folder was moved aside, and nothing has taken its name yet.
    """
    old = path.with_name(f".{path.name}{OLD}")
    if old.is_dir() and not old.is_symlink() and not path.exists() and not path.is_symlink():
        os.replace(old, path)
        flush_folder(path.parent)


@contextlib.contextmanager
def explained_errors(path: pathlib.Path) -> Iterator[None]:
    """Turn a refused write (disk full, no permission) into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"Could not write {path}: {error.strerror or error}.{_free_space(path)} Files written earlier "
            "are kept. "
            "Free some space or fix the permissions and try again; a training run continues with "
            "`costate train --resume`."
        ) from error


def _free_space(path: pathlib.Path) -> str:
    existing = next((parent for parent in path.absolute().parents if parent.exists()), None)
    return f" {shutil.disk_usage(existing).free // 2**20} MiB are free there." if existing else ""


def _in_place(name: str, flags: int) -> int:
    """Open a file for writing in place, as an ``opener``.

    Symbolic links and anything but plain files are refused.
    """
    path = pathlib.Path(name)
    try:
        # Non-blocking: opening a pipe without a reader would wait for ever.
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
    """Open a file for appending, but never through a symbolic link."""
    with explained_errors(path):
        return open(path, "ab", opener=_in_place)


def try_lock(path: pathlib.Path) -> IO[str] | None:
    """Lock a file against other processes; return None if another process holds the lock.

    The lock is released with the returned file, or with the process, however it ends.
    """
    with explained_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = open(path, "a+", errors="replace", opener=_in_place)  # noqa: SIM115  (held by the caller)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    except OSError:
        # This file system has no locks. Its user has to keep two processes apart; refusing would make the
        # file system unusable.
        return lock
    return lock


def note_holder(lock: IO[str], note: str, is_note: Callable[[str], bool]) -> None:
    """Write into a lock file who holds it.

    Raise if the file contains anything but such a note: then it belongs to somebody else, and stays as it is.
    """
    lock.seek(0)
    before = lock.read(LONGEST_NOTE)
    if before and not is_note(before):
        raise StorageError(
            f"{lock.name} should be a lock file, but it contains something that costate did not write, so it "
            "was not "
            "changed. Move it away and try again."
        )
    lock.truncate(0)
    lock.seek(0)
    lock.write(note)
    lock.flush()


def remove_file(path: pathlib.Path) -> None:
    """Delete a file if it exists.

    Of a symbolic link only the link is removed. Raise if a folder has its name.
    """
    if path.is_dir() and not path.is_symlink():
        raise StorageError(
            f"{path} is a folder where a file of costate should be, so it was not removed. Move it away and "
            "try again."
        )
    with explained_errors(path):
        path.unlink(missing_ok=True)


def remove_folder(path: pathlib.Path) -> None:
    """Delete a folder with everything in it. The caller must know that costate wrote all of it."""
    with explained_errors(path):
        shutil.rmtree(path)
