"""Files that are either whole or absent: written under a temporary name, flushed to disk, then renamed."""

import contextlib
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator

from costate._errors import StorageError


def write_atomically(path: pathlib.Path, content: bytes) -> None:
    """Replace ``path`` by ``content``, or leave it as it was."""

    def write(temporary: pathlib.Path) -> None:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    replace_atomically(path, write)


def replace_atomically(path: pathlib.Path, write: Callable[[pathlib.Path], None]) -> None:
    """Let ``write`` make a file or a folder beside ``path``, then give it that name; on any error nothing remains of it."""
    temporary = path.with_name(f".{path.name}.partial")
    with explained_errors(path):
        try:
            _remove(temporary)
            write(temporary)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                _remove(temporary)
            raise


@contextlib.contextmanager
def explained_errors(path: pathlib.Path) -> Iterator[None]:
    """Turn an operating system's refusal to write (a full disk, no permission) into an error that says what to do."""
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError):
            free = shutil.disk_usage(path.parent).free / 2**20
            raise StorageError(
                f"Could not write {path}: {error.strerror or error}. {free:.0f} MiB are free there. Nothing that was written before is lost. "
                "Free some space or fix the permissions, then continue with `costate train --resume RUN`."
            ) from error
        raise StorageError(f"Could not write {path}: {error.strerror or error}.") from error


def _remove(path: pathlib.Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    elif path.exists():
        path.unlink()
