"""EnvPool imports all of its families of environments at once, one of them with matplotlib: two thirds of its import, for what is never used here.

Only our own commands leave them out. In somebody else's program EnvPool is imported as it is, because that program may want the others. A file of
tasks that wants them in a command imports EnvPool at its top, before the command does.
"""

import contextlib
import sys
import types
from collections.abc import Iterator

# All that envpool.entry imports but for dm_control's suite and Gymnasium's MuJoCo environments.
UNUSED = (
    "atari", "box2d", "classic_control", "gfootball", "highway", "jumanji", "minigrid", "mujoco.metaworld", "mujoco.myosuite", "mujoco.playground",
    "mujoco.robotics", "pgx", "procgen", "toy_text", "vizdoom",
)  # fmt: skip
_PROCESS = types.SimpleNamespace(is_ours=False)


def this_process_is_ours() -> None:
    """Said by a command, which knows all that is used in its process."""
    _PROCESS.is_ours = True


@contextlib.contextmanager
def without_unused_families() -> Iterator[None]:
    """While EnvPool is imported, in a process of ours: Python believes that the others were imported already."""
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
