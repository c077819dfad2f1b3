"""Claim processor cores, so that parallel processes never share a core while another idles."""

import contextlib
import os
import pathlib
import stat
import tempfile
from typing import IO

from costate._base.errors import StorageError
from costate._base.files import try_lock


class Claim:
    """Cores that belong to this process.

    The claims are file locks, which the system releases when the process ends, however that happens.
    """

    def __init__(self, cores: tuple[int, ...], locks: tuple[IO[str], ...]) -> None:
        self.cores = cores
        self._locks = locks

    def release(self) -> None:
        for lock in self._locks:
            lock.close()


def _is_ours(folder: pathlib.Path) -> bool:
    """Return True if a folder in a world-writable place is our own, and not somebody else's link."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def claim_cores(count: int) -> Claim | None:
    """Claim ``count`` cores that no other process has claimed; return None if there are not enough."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"costate-cores-{os.getuid()}"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700)
    if not _is_ours(folder):
        return None
    taken: list[tuple[int, IO[str]]] = []
    for core in sorted(os.sched_getaffinity(0)):
        if len(taken) == count:
            break
        try:
            lock = try_lock(folder / str(core))
        except StorageError:  # without claims, workers run on any core, which is slower but correct
            return None
        if lock is not None:
            taken.append((core, lock))
    claim = Claim(tuple(core for core, _ in taken), tuple(lock for _, lock in taken))
    if len(taken) < count:
        claim.release()
        return None
    return claim
