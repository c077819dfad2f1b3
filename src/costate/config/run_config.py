"""A run as data: which task, policy, sensors and learner, with a JSON form and a hash."""

import dataclasses
import hashlib
import json
from typing import Any, Literal

from costate._base.checks import require_countable, require_finite
from costate._base.errors import ConfigError
from costate._base.first_release import changes, filled
from costate._base.plain_data import CHOICES, decode, encode
from costate._base.registry import nearest
from costate._base.undecided import UNDECIDED
from costate.envs.sensors import SensorConfig, check_sensors, inputs_beside
from costate.envs.tasks import TASKS, Task
from costate.learners.ppo.config import PPOConfig, check_divisible, streams_per_minibatch
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.between_rollouts import check_sac
from costate.learners.sac.config import SACConfig
from costate.losses import AuxiliaryLossConfig
from costate.policies.cores import CORES
from costate.policies.policy import PolicyConfig
from costate.policies.readouts import READOUTS
from costate.policies.readouts.gaussian import GaussianReadoutConfig

AlgorithmName = Literal["ppo", "sac"]
# What a learner needs of a rollout, where it is not given. On-policy: the paper's. Off-policy: few environments, so that the
# replay is filled no faster than it is learnt from, and 11 × 91 = 1001 rows, a whole episode with its last observation. Noise that
# stays on one side for a while moves a body, where white noise makes it tremble; a replay does not mind how it was explored.
OWN_ROLLOUT: dict[AlgorithmName, dict[str, Any]] = {
    "ppo": {"environments": 32, "rollout_length": 1000, "noise_colour": 0.0},
    "sac": {"environments": 16, "rollout_length": 91, "noise_colour": 1.0},
}
# What off-policy learning is given if nothing else is said: five to twenty minutes on two cores.
OFF_POLICY_BUDGET = 1_000_000
# Names of checkpoints have twelve digits.
MOST_STEPS = 10**12 - 1
# What a run may be given anew when it goes on: its weights fit, and what was trained stays what it is.
MAY_CHANGE = ("steps", "checkpoint_every", "evaluate_every", "diverged")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """Everything that decides what a run computes. Two runs with equal configs on one machine give equal numbers.

    What is not given is what `costate train` does where it is not told: ``RunConfig(task, algorithm="sac")`` equals
    `costate train TASK --algorithm sac`.
    """

    task: str
    seed: int = 0
    """Seed of weights, noise, sensor faults and episodes."""
    steps: int | None = None
    """Environment steps; None for the task's budget in the paper, or a million where learning is off-policy."""
    checkpoint_every: int = 20
    """Iterations between two checkpoints."""
    evaluate_every: int | None = None
    """Environment steps between two evaluations without exploration noise; None for about 2 % of the time, 0 for none."""
    policy: PolicyConfig = PolicyConfig()
    sensors: SensorConfig = SensorConfig()
    rollout: RolloutConfig = RolloutConfig()
    ppo: PPOConfig = PPOConfig()
    algorithm: AlgorithmName = "ppo"
    """Learner: proximal policy optimisation as in the paper, or recurrent soft actor-critic."""
    sac: SACConfig = SACConfig()
    losses: tuple[AuxiliaryLossConfig, ...] = ()
    """Auxiliary losses on the memory beside the learner's own, each with its weight."""
    diverged: Literal["stop", "slow-down"] = "stop"
    """What to do when a loss is no longer a number: stop, or return to the last good checkpoint with half the learning rate, a few times."""

    def __post_init__(self) -> None:
        task = TASKS[self.task]  # an unknown task is the first thing to say
        if self.algorithm not in OWN_ROLLOUT:
            raise ConfigError(
                f"Unknown algorithm {self.algorithm!r}. {nearest(str(self.algorithm), tuple(OWN_ROLLOUT))}"
            )
        self._decide()
        require_finite(self)
        require_countable(self, but=("seed", "steps", "evaluate_every", "capacity"))
        check_sensors(self.sensors, task.observation, task.episode_steps)
        # Before the learner's own checks, which would speak of a run without iterations.
        self._check_budget()
        self._check_learner()
        self._check_warmup()
        check_seed(self.seed)
        if self.checkpoint_every < 1:
            raise ConfigError(
                f"checkpoint_every is {self.checkpoint_every}, but it must be at least 1 iteration."
            )
        if self.evaluate_every is not None and self.evaluate_every < 0:
            raise ConfigError(
                f"evaluate_every is {self.evaluate_every}, but it must be a number of environment steps, or 0 for no evaluation during training."
            )

    def _decide(self) -> None:
        """Fill in what is left to the learner and to the task.

        The only place where a config changes itself. Neither the learner nor the task is known where a rollout or a
        critic is described, and all that compares, stores or hashes a config has to see what it means.
        """
        own = {
            name: value
            for name, value in OWN_ROLLOUT[self.algorithm].items()
            if getattr(self.rollout, name) is UNDECIDED
        }
        object.__setattr__(self, "rollout", dataclasses.replace(self.rollout, **own))
        if self.algorithm == "sac" and self.sac.critic is UNDECIDED:
            critic: Literal["sighted", "recurrent"] = (
                "sighted" if TASKS[self.task].observes_state else "recurrent"
            )
            object.__setattr__(self, "sac", dataclasses.replace(self.sac, critic=critic))

    def _check_budget(self) -> None:
        if self.total_steps > MOST_STEPS:
            raise ConfigError(
                f"steps is {self.total_steps}, but a run has at most {MOST_STEPS:,} environment steps. Ask for fewer."
            )
        if self.total_steps < self.rollout.steps_per_iteration:
            raise ConfigError(
                f"steps is {self.total_steps}, but one iteration alone takes {self.rollout.steps_per_iteration} steps ({self.rollout.environments} "
                f"environments × {self.rollout.rollout_length}). Ask for at least that many, or make iterations shorter with --rollout-length."
            )

    def _check_learner(self) -> None:
        other = self.other_learner
        if getattr(self, other) != (SACConfig() if other == "sac" else PPOConfig()):
            raise ConfigError(
                f"The algorithm is {self.algorithm}, but settings of {other} were changed, which would have no effect. Leave them out."
            )
        self._check_hypotheses()
        if self.algorithm == "ppo":
            check_divisible(self.rollout, self.ppo)
            self._check_bootstrap()
            if self.ppo.learning_rate_decay == "adaptive" and self.diverged == "slow-down":
                raise ConfigError(
                    "diverged is slow-down, but learning_rate_decay is adaptive, which would soon undo that the rate was halved. Leave one out."
                )
        else:
            check_sac(self.rollout, self.sac, self.iterations)
            if self.sac.critic == "sighted" and not TASKS[self.task].observes_state:
                raise ConfigError(
                    f"The critic is sighted and has no memory, but what {self.task} shows without blackouts does not determine its state either. Use "
                    f"--critic recurrent."
                )
            readout = self.policy.readout
            if readout.off_policy_obstacle:
                fitting = " or ".join(
                    name for name in READOUTS.names() if not READOUTS[name].off_policy_obstacle
                )
                name = READOUTS.name_of(type(readout))
                raise ConfigError(
                    f"The readout {name} {readout.off_policy_obstacle}. Use --readout {fitting}, or --algorithm ppo."
                )
            if (
                isinstance(readout, GaussianReadoutConfig)
                and readout.initial_deviation != GaussianReadoutConfig.initial_deviation
            ):
                raise ConfigError(
                    f"initial_deviation is {readout.initial_deviation}, but soft actor-critic learns how widely to explore, so that it would have no "
                    f"effect. Leave it out, or use --algorithm ppo."
                )

    def _check_warmup(self) -> None:
        """Faults that remember, or that a robot is built with, cannot set in by being left out now and then."""
        if self.rollout.fault_warmup == 0.0:
            return
        passing = ("dropout", "group_dropout", "sensor_dropout", "noise")
        if not any(getattr(self.sensors, name) > 0.0 for name in passing):
            raise ConfigError(
                f"fault_warmup is {self.rollout.fault_warmup}, but no sensor ever fails, so that nothing could set in. Leave it out."
            )
        others = [name for name in self.sensors.other_faults if name not in passing]
        if others:
            raise ConfigError(
                f"fault_warmup is {self.rollout.fault_warmup}, but {', '.join(others)} cannot set in by and by: only faults of single steps can "
                f"({', '.join(passing)}). Leave fault_warmup or the others out."
            )

    def _check_hypotheses(self) -> None:
        ppo, policy = self.ppo, self.policy
        for_ensembles = {
            "bootstrap": ppo.bootstrap != PPOConfig.bootstrap,
            "spread_bonus": ppo.spread_bonus > 0.0,
        }
        for_ensembles["costate_average ensemble"] = ppo.costate_average == "ensemble"
        for name, given in for_ensembles.items():
            if given and policy.ensemble == 1:
                raise ConfigError(
                    f"{name} was given, but it is about several hypotheses and ensemble is 1. Give --ensemble 5, or leave it out."
                )
        if self.algorithm == "sac" and (policy.ensemble > 1 or policy.features != policy.hidden_size):
            raise ConfigError(
                "An ensemble, or features of another width than the hidden state, need PPO: leave --ensemble and --feature-size out."
            )
        core = CORES.name_of(type(policy.core))
        if ppo.costate_gradient == "both" and not policy.core.shows_all:
            fitting = ", ".join(name for name in CORES.names() if CORES[name].shows_all)
            raise ConfigError(
                f"costate_gradient is both, but the core {core} carries more than its hidden state. Use one of {fitting}."
            )

    def _check_bootstrap(self) -> None:
        """A critic learns from each stream by chance; refuse a share that leaves it with none of them more often than not."""
        streams = streams_per_minibatch(self.rollout, self.ppo)
        nothing = (1.0 - self.ppo.bootstrap) ** streams
        if self.policy.ensemble > 1 and nothing > 0.5:
            raise ConfigError(
                f"bootstrap is {self.ppo.bootstrap}, but a minibatch has {streams} stream{'s' if streams > 1 else ''}, so that a critic would learn "
                f"nothing from {nothing:.0%} of the minibatches. Use at least {1.0 - 0.5 ** (1.0 / streams):.2g}, fewer minibatches, or more "
                f"environments."
            )

    @property
    def other_learner(self) -> AlgorithmName:
        """The unused learner, whose settings have no effect."""
        return "sac" if self.algorithm == "ppo" else "ppo"

    @property
    def costate_coef(self) -> float:
        """Weight c₃ of the co-state loss, whatever the learner."""
        return self.sac.costate_coef if self.algorithm == "sac" else self.ppo.costate_coef

    @property
    def task_record(self) -> Task:
        return TASKS[self.task]

    @property
    def observation_size(self) -> int:
        """Numbers that a policy reads: those of the sensors, and what it is told beside them."""
        size = self.task_record.observation_size
        return size + inputs_beside(self.sensors, size)

    @property
    def total_steps(self) -> int:
        """Environment steps asked for."""
        budget = OFF_POLICY_BUDGET if self.algorithm == "sac" else self.task_record.budget
        return budget if self.steps is None else self.steps

    @property
    def iterations(self) -> int:
        """Whole iterations that fit in them."""
        return self.total_steps // self.rollout.steps_per_iteration

    @property
    def final_steps(self) -> int:
        """Environment steps after the last of them."""
        return self.iterations * self.rollout.steps_per_iteration

    def slowed(self, times: int) -> "RunConfig":
        """The same with a learning rate that was halved so many times."""
        if self.algorithm == "sac":
            return dataclasses.replace(
                self, sac=dataclasses.replace(self.sac, learning_rate=self.sac.learning_rate * 0.5**times)
            )
        return dataclasses.replace(
            self, ppo=dataclasses.replace(self.ppo, learning_rate=self.ppo.learning_rate * 0.5**times)
        )

    @property
    def cycle(self) -> int:
        """Iterations between two moments at which every environment starts afresh: as many as it takes to see a whole episode.

        With the paper's 1000 steps per iteration this is 1, so that every iteration is one episode of each environment, as in Algorithm 1.
        """
        return -(-self.task_record.episode_steps // self.rollout.rollout_length)


def check_seed(seed: Any) -> None:
    """Raise unless everything that draws random numbers can be seeded with it."""
    if type(seed) is not int or not 0 <= seed < 2**32:
        raise ConfigError(f"seed is {seed!r}, but seeds are whole numbers from 0 to {2**32 - 1}.")


def to_json(config: RunConfig) -> dict[str, Any]:
    """The config as plain data; parts chosen by name carry that name."""
    encoded: dict[str, Any] = encode(config)
    return encoded


def from_json(data: dict[str, Any]) -> RunConfig:
    """Return the config that :func:`to_json` stored; an unknown or ill-typed entry is an error that names it.

    A missing field was unknown to the version that wrote the config, and means what that version did. Settings of
    the unused learner had no effect; they are dropped, because the defaults that they were may be others today.
    """
    if isinstance(data, dict):
        data = filled(data)
        data.pop("sac" if data["algorithm"] == "ppo" else "ppo")
    config: RunConfig = decode(RunConfig, data, "config")
    return config


def with_overrides(config: RunConfig, overrides: dict[str, Any]) -> RunConfig:
    """Return ``config`` with some fields changed, given as nested plain data.

    A core or readout of another name starts from its own defaults, and so does another learner, with the rollout that
    it needs.
    """
    base = to_json(config)
    # If they are not overridden, they are not given.
    base.pop(config.other_learner)
    if overrides.get("algorithm", config.algorithm) != config.algorithm:
        base.pop(config.algorithm)
        base["rollout"] = {
            name: value
            for name, value in base["rollout"].items()
            if name not in OWN_ROLLOUT[config.algorithm]
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

    Only what differs from the first release counts, so that a run keeps its hash when a later version adds a
    field or improves a default. Settings of the unused learner do not count.
    """
    different = {name: value for name, value in changes(config).items() if name != config.other_learner}
    canonical = json.dumps(different, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def differing_fields(left: dict[str, Any], right: dict[str, Any]) -> tuple[str, ...]:
    """Names of the fields in which two configs, as JSON, differ, with both values."""
    flat_left, flat_right = _flatten(left), _flatten(right)
    names = sorted(flat_left.keys() | flat_right.keys())
    return tuple(
        f"{name}: {flat_left.get(name)!r} → {flat_right.get(name)!r}"
        for name in names
        if flat_left.get(name) != flat_right.get(name)
    )


def flat_json(config: RunConfig) -> dict[str, Any]:
    """Return the fields of a config as plain data by their places: ``policy.core.name`` and so on."""
    return _flatten(to_json(config))


def apart_from(config: RunConfig, *fields: str) -> frozenset[tuple[str, Any]]:
    """Return a key that two configs share exactly when they are equal but for these fields.

    Nothing is changed to compare: a budget that is right for one config can be impossible for another.
    """
    flat = flat_json(config).items()
    return frozenset(
        (place, tuple(value) if isinstance(value, list) else value)
        for place, value in flat
        if place not in fields
    )


def without_changeable(data: dict[str, Any]) -> dict[str, Any]:
    """A config, as JSON, without what may change while a run goes on."""
    return {name: value for name, value in data.items() if name not in MAY_CHANGE}


def _flatten(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in data.items():
        flat |= _flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return flat
