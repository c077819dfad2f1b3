"""Processor cores for processes that run side by side: each claims its own, so that two runs never share one while another idles."""

import contextlib
import os
import pathlib
import stat
import tempfile
from typing import IO

from costate._base.errors import StorageError
from costate._base.files import try_lock


class Claim:
    """Cores that belong to this process until it ends, however it ends: the claims are file locks, which the system drops by itself."""

    def __init__(self, cores: tuple[int, ...], locks: tuple[IO[str], ...]) -> None:
        self.cores = cores
        self._locks = locks

    def release(self) -> None:
        for lock in self._locks:
            lock.close()


def _is_ours(folder: pathlib.Path) -> bool:
    """Whether a folder in a place where everybody may write is one that we made, and no link that somebody else put there."""
    try:
        status = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid()


def claim_cores(count: int) -> Claim | None:
    """``count`` cores that no other process has claimed; None if there are not so many."""
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
        except StorageError:  # without claims, workers run on any core: slower, not wrong
            return None
        if lock is not None:
            taken.append((core, lock))
    claim = Claim(tuple(core for core, _ in taken), tuple(lock for _, lock in taken))
    if len(taken) < count:
        claim.release()
        return None
    return claim
