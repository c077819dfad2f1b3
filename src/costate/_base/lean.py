"""Import EnvPool without the environment families that costate never uses.

EnvPool imports all of its families at once, one of them with matplotlib. The unused ones take two thirds of
its import time. Only costate's own commands skip them. Another program may need them, so there EnvPool is
imported whole. A task file that needs them inside a command has to import EnvPool at its top, before the
command does.
"""

import contextlib
import sys
import types
from collections.abc import Iterator

# Everything that envpool.entry imports, except dm_control's suite and Gymnasium's MuJoCo environments.
UNUSED = (
    "atari", "box2d", "classic_control", "gfootball", "highway", "jumanji", "minigrid", "mujoco.metaworld",
    "mujoco.myosuite", "mujoco.playground", "mujoco.robotics", "pgx", "procgen", "toy_text", "vizdoom",
)  # fmt: skip
_PROCESS = types.SimpleNamespace(is_ours=False)


def this_process_is_ours() -> None:
    """Mark this process as one of costate's commands, which know everything that is imported in it."""
    _PROCESS.is_ours = True


@contextlib.contextmanager
def without_unused_families() -> Iterator[None]:
    """Skip the unused families while EnvPool is imported in a process of costate's.

    Empty modules stand in for them, so that Python believes that they were imported already.
    """
    left_out = (
        {f"envpool.{family}.registration" for family in UNUSED}
        if _PROCESS.is_ours and "envpool" not in sys.modules
        else set()
    )
    sys.modules.update({name: types.ModuleType(name) for name in left_out})
    try:
        yield
    finally:
        for name in left_out:
            del sys.modules[name]
