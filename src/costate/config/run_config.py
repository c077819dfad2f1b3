"""A run as data: which task, policy, sensors and learner, with a JSON form and a hash."""

import dataclasses
import hashlib
import json
from typing import Any

from costate._base.checks import require_countable, require_finite
from costate._base.errors import ConfigError
from costate._base.first_release import changes, filled
from costate._base.plain_data import CHOICES, decode, encode
from costate._base.undecided import UNDECIDED
from costate.config.loss_settings import check_losses
from costate.config.migrations import VERSION, in_first_layout, learner_named_in, migrated, with_learner
from costate.config.run_settings import RunSettings
from costate.envs.sensors import SensorConfig, check_sensors, inputs_beside
from costate.envs.tasks import TASKS, Task
from costate.learners import LEARNERS, LearnerConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.losses import AuxiliaryLossConfig
from costate.policies.policy import PolicyConfig

# Names of checkpoints have twelve digits.
MOST_STEPS = 10**12 - 1
# Fields that may change when a run is resumed: its weights still fit, and what was trained stays the same.
MAY_CHANGE = ("steps", "checkpoint_every", "evaluate_every", "diverged")


@dataclasses.dataclass(frozen=True)
class RunConfig(RunSettings):
    """All settings of a run. Two runs with equal configs on one machine give equal numbers.

    Defaults are those of `costate train`: ``RunConfig(task, learner=SACConfig())`` equals
    `costate train TASK --algorithm sac`.
    """

    task: str
    policy: PolicyConfig = PolicyConfig()
    sensors: SensorConfig = SensorConfig()
    rollout: RolloutConfig = RolloutConfig()
    learner: LearnerConfig = PPOConfig()
    """Learner with its settings: proximal policy optimisation as in the paper, or any other in
    ``LEARNERS``."""
    losses: tuple[AuxiliaryLossConfig, ...] = ()
    """Auxiliary losses on the memory beside the learner's own, each with its weight."""

    def __post_init__(self) -> None:
        task = TASKS[self.task]  # first, so that an unknown task is what the error names
        self._check_kinds()
        self._decide()
        require_finite(self)
        require_countable(self, but=("seed", "steps", "evaluate_every", "capacity"))
        check_sensors(self.sensors, task.observation, task.episode_steps)
        # Before the learner's own checks, whose messages would be about a run without iterations.
        self._check_budget()
        self.learner.check(self)
        check_losses(self.losses)
        self._check_honoured()
        self._check_warmup()
        check_seed(self.seed)
        if self.checkpoint_every < 1:
            raise ConfigError(
                f"checkpoint_every is {self.checkpoint_every}, but it must be at least 1 iteration."
            )
        if self.evaluate_every is not None and self.evaluate_every < 0:
            raise ConfigError(
                f"evaluate_every is {self.evaluate_every}, but it must be a number of environment steps, or "
                "0 for no evaluation during training."
            )

    def _check_kinds(self) -> None:
        """Raise if a part is not a config. Python does not check types."""
        if not isinstance(self.learner, LearnerConfig):
            raise ConfigError(
                f"learner is {self.learner!r}, but it should be the settings of a learner, such as "
                f"PPOConfig() or SACConfig(). Learners: {', '.join(LEARNERS.names())}."
            )
        if not isinstance(self.losses, tuple):
            raise ConfigError(f"losses is {self.losses!r}, but it should be a tuple of auxiliary losses.")

    def _decide(self) -> None:
        """Fill in the settings that the learner or the task decides.

        This is the only place where a config changes itself. The parts of a config know neither the learner
        nor the task, and whatever compares, stores or hashes a config needs the decided values.
        """
        own = {
            name: value
            for name, value in (LearnerConfig.usual_rollout | self.learner.usual_rollout).items()
            if getattr(self.rollout, name) is UNDECIDED
        }
        object.__setattr__(self, "rollout", dataclasses.replace(self.rollout, **own))
        object.__setattr__(self, "learner", self.learner.decided(self.task_record))

    def _check_budget(self) -> None:
        if self.total_steps > MOST_STEPS:
            raise ConfigError(
                f"steps is {self.total_steps}, but a run has at most {MOST_STEPS:,} environment steps. "
                "Use fewer."
            )
        if self.total_steps < self.rollout.steps_per_iteration:
            raise ConfigError(
                f"steps is {self.total_steps}, but one iteration alone takes "
                f"{self.rollout.steps_per_iteration} steps ({self.rollout.environments} environments × "
                f"{self.rollout.rollout_length}). Use at least that many, or make iterations shorter with "
                "--rollout-length."
            )

    def _check_honoured(self) -> None:
        """Raise if the learner would ignore a setting of the run."""
        ignored = {
            "losses": bool(self.losses) and not self.learner.trains_losses,
            "fault_warmup": self.rollout.fault_warmup > 0.0 and not self.learner.warms_up_faults,
        }
        for name, is_ignored in ignored.items():
            if is_ignored:
                raise ConfigError(
                    f"{name} was given, but the learner {self.learner_name} ({self.learner.label}) ignores "
                    f"it. Leave it out, or use another learner."
                )

    def _check_warmup(self) -> None:
        """Raise if ``fault_warmup`` is given without faults of single steps, or with faults of another kind.

        Faults with a memory, or fixed for a robot, cannot set in by being left out in some steps.
        """
        if self.rollout.fault_warmup == 0.0:
            return
        passing = ("dropout", "group_dropout", "sensor_dropout", "noise")
        if not any(getattr(self.sensors, name) > 0.0 for name in passing):
            raise ConfigError(
                f"fault_warmup is {self.rollout.fault_warmup}, but no sensor ever fails, so it would have no "
                "effect. Leave it out."
            )
        others = [name for name in self.sensors.other_faults if name not in passing]
        if others:
            raise ConfigError(
                f"fault_warmup is {self.rollout.fault_warmup}, but {', '.join(others)} cannot set in "
                f"gradually: only faults of single steps can ({', '.join(passing)}). Leave fault_warmup or "
                "the others out."
            )

    @property
    def learner_name(self) -> str:
        """The name under which the learner is registered."""
        return LEARNERS.name_of(type(self.learner))

    @property
    def costate_coef(self) -> float:
        """Weight c₃ of the co-state loss."""
        return self.learner.costate_coef

    @property
    def task_record(self) -> Task:
        return TASKS[self.task]

    @property
    def observation_size(self) -> int:
        """Numbers that a policy reads: those of the sensors, and the inputs beside them, such as the mask."""
        size = self.task_record.observation_size
        return size + inputs_beside(self.sensors, size)

    @property
    def total_steps(self) -> int:
        """Environment steps requested: ``steps``, or the learner's budget on the task."""
        return self.learner.budget(self.task_record) if self.steps is None else self.steps

    @property
    def iterations(self) -> int:
        """Whole iterations within the requested steps."""
        return self.total_steps // self.rollout.steps_per_iteration

    @property
    def final_steps(self) -> int:
        """Environment steps after the last iteration."""
        return self.iterations * self.rollout.steps_per_iteration

    def slowed(self, times: int) -> "RunConfig":
        """Return the config with the learning rate halved ``times`` times."""
        return dataclasses.replace(self, learner=self.learner.slowed(times))

    @property
    def cycle(self) -> int:
        """Iterations between two resets of all environments: as many as a whole episode takes.

        With the paper's 1000 steps per iteration this is 1: every iteration is one episode of each
        environment, as in Algorithm 1.
        """
        return -(-self.task_record.episode_steps // self.rollout.rollout_length)


def check_seed(seed: Any) -> None:
    """Raise unless all random number generators accept a seed."""
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ConfigError(f"seed is {seed!r}, but seeds are whole numbers from 0 to {2**32 - 1}.")


def to_json(config: RunConfig) -> dict[str, Any]:
    """Return the config as plain data. Parts that are chosen by name carry that name."""
    encoded: dict[str, Any] = encode(config)
    return encoded


def stored(config: RunConfig) -> dict[str, Any]:
    """Return :func:`to_json` with the version of its layout, as it is written to files."""
    return {"version": VERSION} | to_json(config)


def from_json(data: dict[str, Any]) -> RunConfig:
    """Return the config from the data of :func:`stored` or :func:`to_json`.

    Raise a ConfigError that names an unknown or ill-typed entry. Layouts of earlier versions are read too. A
    missing field was unknown to the version that wrote the config, and takes the value that reproduces it.
    """
    if isinstance(data, dict):
        data = filled(migrated(data))
    config: RunConfig = decode(RunConfig, data, "config")
    return config


def with_overrides(config: RunConfig, overrides: dict[str, Any]) -> RunConfig:
    """Return ``config`` with some fields changed, given as nested plain data.

    A core or readout with another name starts from its own defaults. So does another learner, with its own
    rollout. The settings of a learner are under ``learner``, or under the learner's name beside
    ``algorithm``.
    """
    base = to_json(config)
    overrides = with_learner(overrides, base["learner"]["name"])
    wanted = learner_named_in(overrides) or base["learner"]["name"]
    if wanted != base["learner"]["name"]:
        # Only its name: the rest takes the new learner's defaults.
        base["learner"] = {"name": wanted}
        base["rollout"] = {
            name: value for name, value in base["rollout"].items() if name not in config.learner.usual_rollout
        }
    changed: RunConfig = decode(RunConfig, _merge(base, overrides), "config")
    return changed


def _merge(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    if changes.get("name", base.get("name")) != base.get("name"):
        base = next(
            (
                encode(registry[changes["name"]]())
                for registry in CHOICES.values()
                if base.get("name") in registry
            ),
            base,
        )
    merged = dict(base)
    for name, value in changes.items():
        both = isinstance(value, dict) and isinstance(base.get(name), dict)
        merged[name] = _merge(base[name], value) if both else value
    return merged


def config_hash(config: RunConfig) -> str:
    """Return twelve hexadecimal digits that two configs share exactly when they are equal.

    Only differences from the first release are hashed, in its layout, so that a run keeps its hash when a
    later version adds a field or improves a default.
    """
    different = in_first_layout(changes(config))
    canonical = json.dumps(different, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def differing_fields(left: dict[str, Any], right: dict[str, Any]) -> tuple[str, ...]:
    """Return the fields in which two configs, as JSON, differ, with both values."""
    flat_left, flat_right = _flatten(left), _flatten(right)
    names = sorted(flat_left.keys() | flat_right.keys())
    return tuple(
        f"{name}: {flat_left.get(name)!r} → {flat_right.get(name)!r}"
        for name in names
        if flat_left.get(name) != flat_right.get(name)
    )


def flat_json(config: RunConfig) -> dict[str, Any]:
    """Return the fields of a config as plain data by path: ``policy.core.name`` and so on."""
    return _flatten(to_json(config))


def apart_from(config: RunConfig, *fields: str) -> frozenset[tuple[str, str]]:
    """Return a key that two configs share exactly when they differ in these fields at most.

    No field is replaced for the comparison, because a budget that suits one config can be invalid in another.
    """
    flat = flat_json(config).items()
    return frozenset(
        (place, json.dumps(value, sort_keys=True)) for place, value in flat if place not in fields
    )


def without_changeable(data: dict[str, Any]) -> dict[str, Any]:
    """Return a config, as JSON, without the fields that may change when a run is resumed."""
    return {name: value for name, value in data.items() if name not in MAY_CHANGE}


def _flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
