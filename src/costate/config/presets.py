"""Named configs: the presets of each learner, and `fast` for small machines."""

from costate._base.errors import ConfigError
from costate._base.registry import nearest
from costate.config.fast import fast
from costate.config.run_config import RunConfig
from costate.learners import DEFAULT_LEARNER, LEARNERS, LearnerConfig

FAST = "fast"


def preset_names() -> tuple[str, ...]:
    """Return the names of all presets, of the learners that are registered by now."""
    names = (*(name for kind in LEARNERS for name in kind.presets()), FAST)
    for name in names:
        if names.count(name) > 1:
            owners = [LEARNERS.name_of(kind) for kind in LEARNERS if name in kind.presets()]
            raise ConfigError(
                f"There are {names.count(name)} presets called {name!r} (of {', '.join(owners)}). "
                f"Rename one of them."
            )
    return names


PRESETS = preset_names()
"""The names of the presets that there are when this module is imported."""


def usual_preset(algorithm: str | None) -> str:
    """Return the default preset of a learner, or of the first learner if none is named."""
    learner: type[LearnerConfig] = LEARNERS[algorithm if algorithm in LEARNERS else DEFAULT_LEARNER]
    return learner.usual_preset()


def check_preset(name: str, task: str, algorithm: str) -> None:
    """Raise unless a preset uses the given learner on a task."""
    found = preset(name, task).learner_name
    if found != algorithm:
        learners = {other: preset(other, task).learner_name for other in preset_names()}
        fitting = ", ".join(other for other, learner in learners.items() if learner == algorithm)
        raise ConfigError(
            f"The preset {name} is one of {found}, but --algorithm is {algorithm}. Presets of {algorithm} on "
            f"{task}: {fitting}."
        )


def preset(name: str, task: str) -> RunConfig:
    """Return the config of a preset on a task."""
    if name == FAST:
        return fast(task)
    for kind in LEARNERS:
        if name in kind.presets():
            variant = kind.presets()[name]
            return RunConfig(
                task,
                learner=variant.learner,
                policy=variant.policy,
                sensors=variant.sensors,
                rollout=variant.rollout,
            )
    raise ConfigError(f"Unknown preset {name!r}. {nearest(name, preset_names())}")
