"""EnvPool imports all of its families of environments at once, one of them with matplotlib: two thirds of its import, for what is never used here.

Only our own commands leave them out. In somebody else's program EnvPool is imported as it is, because that program may want the others.
"""

import sys
import types

# All that envpool.entry imports but for dm_control's suite and Gymnasium's MuJoCo environments.
UNUSED = (
    "atari", "box2d", "classic_control", "gfootball", "highway", "jumanji", "minigrid", "mujoco.metaworld", "mujoco.myosuite", "mujoco.playground",
    "mujoco.robotics", "pgx", "procgen", "toy_text", "vizdoom",
)  # fmt: skip


class _Absent(types.ModuleType):
    """Stands where a family would be, so that Python believes it to be imported."""


def leave_out_unused_families() -> None:
    """From the next import of EnvPool; too late, and without effect, where it has been imported."""
    if "envpool" not in sys.modules:
        for family in UNUSED:
            name = f"envpool.{family}.registration"
            sys.modules.setdefault(name, _Absent(name))


def give_unused_families_back() -> None:
    """After that import: whoever asks for one of them now gets it."""
    for name in [name for name, module in sys.modules.items() if isinstance(module, _Absent)]:
        del sys.modules[name]
