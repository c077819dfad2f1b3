"""Names of settings on the command line and in Python, where parts of a config have no prefix."""

import dataclasses

from costate._base.errors import ConfigError
from costate.config.loss_settings import loss_settings
from costate.config.run_settings import RUN_SETTINGS
from costate.envs.sensors import SensorConfig
from costate.learners import LEARNERS, LearnerConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig


def places_of(learner: type[LearnerConfig], *further: str) -> dict[str, tuple[str, ...]]:
    """Return flat name → place in the config, of all settings with this learner.

    Raise if a setting of the learner has the name of another. ``further`` are names that the caller has too.
    """
    places: dict[str, tuple[str, ...]] = dict.fromkeys((*RUN_SETTINGS, "losses"), ())
    for part, kind in {"sensors": SensorConfig, "policy": PolicyConfig, "rollout": RolloutConfig}.items():
        places |= {field.name: (part,) for field in dataclasses.fields(kind)}
    name = LEARNERS.name_of(learner)
    if name in (*places, "task", "sensors", "policy", "rollout", "learner", "algorithm"):
        raise ConfigError(
            f"A learner is called {name!r}, but that is the name of a setting. Rename the learner."
        )
    for flat, (loss, _) in loss_settings().items():
        if flat in places or flat in {field.name for field in dataclasses.fields(learner)}:
            raise ConfigError(
                f"The auxiliary loss {loss} makes the setting {flat!r}, but that is the name of another. "
                f"Rename the loss."
            )
    for field in dataclasses.fields(learner):
        if field.name in (*places, *further):
            owner = ".".join((*places.get(field.name, ("costate train",)), field.name))
            flag = f"--{field.name.replace('_', '-')}"
            raise ConfigError(
                f"The learner {name} has a setting {field.name!r}, but that is the name "
                f"of another ({owner}), and both are the flag {flag}. Rename the learner's."
            )
        places[field.name] = ("learner",)
    return places
