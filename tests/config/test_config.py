"""Configs as data: round trip, hash, presets, and errors that name what is wrong."""

import dataclasses
import json
import math

import pytest

from costate._base.errors import ConfigError
from costate._base.plain_data import encode
from costate.config.fast import FASTEST
from costate.config.migrations import VERSION
from costate.config.naming import variant_name
from costate.config.presets import PRESETS, preset
from costate.config.run_config import (
    RunConfig,
    check_seed,
    config_hash,
    differing_fields,
    from_json,
    stored,
    to_json,
    with_overrides,
)
from costate.envs.sensors import SensorConfig
from costate.envs.tasks import PAPER_TASKS, TASKS
from costate.learners.ppo.config import PPOConfig
from costate.learners.replay import ReplayConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.cores import CORES
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.policy import PolicyConfig
from costate.policies.readouts import READOUTS
from costate.policies.readouts.linear import QuadraticReadoutConfig


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_the_round_trip_through_json(name):
    config = preset(name, "WalkerStand")
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_a_soft_actor_critic_stored_before_statistics_could_run_on_has_them_frozen():
    config = preset("nc-sac-gru", "WalkerStand")
    assert config.learner.observation_statistics == "running"
    old = to_json(config)
    del old["learner"]["observation_statistics"]
    assert from_json(old).learner.observation_statistics == "frozen"


def test_presets_are_the_papers_variants():
    coefficients = {name: preset(name, "WalkerStand").costate_coef for name in PRESETS}
    paper = {"gru": 0.0, "nc-gru": 0.05, "ctrnn": 0.0, "nc-ctrnn": 0.05, "authors-code": 0.05, "ncp": 0.05}
    assert coefficients == paper | {
        "sac-gru": 0.0,
        "nc-sac-gru": 0.05,
        "sac-ctrnn": 0.0,
        "nc-sac-ctrnn": 0.05,
        "fast": 0.0,
    }
    assert [name for name in PRESETS if preset(name, "WalkerStand").learner_name == "ppo"] == list(paper)
    assert isinstance(preset("nc-ctrnn", "WalkerStand").policy.core, CTRNNConfig)
    assert isinstance(preset("nc-sac-ctrnn", "WalkerStand").policy.core, CTRNNConfig)


def test_the_fast_preset_learns_on_policy_only_where_controls_hardly_matter():
    learners = {
        task: preset("fast", task).learner_name
        for task in (*PAPER_TASKS, "FishUpright", "LQG", "gym:Pendulum-v1")
    }
    assert [task for task, learner in learners.items() if learner == "ppo"] == ["FingerTurnHard", "FishSwim"]
    # A critic that sees would not know the state of LQG.
    assert preset("fast", "LQG").learner.critic == "recurrent"
    assert all(task in TASKS for task in FASTEST)
    # As many updates in an iteration, from twice the steps.
    usual, fast = preset("sac-gru", "WalkerRun"), preset("fast", "WalkerRun")
    assert fast.rollout.steps_per_iteration == 2 * usual.rollout.steps_per_iteration
    updates = [
        config.rollout.steps_per_iteration // config.learner.steps_per_update for config in (usual, fast)
    ]
    assert updates == [91, 91]
    assert variant_name(dataclasses.replace(preset("fast", "FishSwim"), seed=3, steps=640_000)) == "fast"


def test_a_config_from_before_the_second_learner_keeps_its_hash_and_its_meaning():
    old = to_json(preset("nc-gru", "WalkerStand"))
    old["ppo"] = old.pop("learner")
    del old["ppo"]["name"]
    assert from_json(old) == preset("nc-gru", "WalkerStand")
    # As it was computed before there was a choice.
    assert (
        config_hash(RunConfig("CheetahRun", seed=2, steps=5_000_000, learner=PPOConfig(costate_coef=0.1)))
        == "7bf508d1ec26"
    )


@pytest.mark.parametrize(
    ("old", "wanted"),
    [
        ({"ppo": {"epochs": 2}, "sac": {"head_width": 7}}, PPOConfig(epochs=2)),
        ({"algorithm": "ppo", "ppo": {}, "sac": {}}, PPOConfig()),
        (
            {"algorithm": "sac", "ppo": {"epochs": 2}, "sac": {"head_width": 7}},
            # What the first release did where nothing was said.
            SACConfig(
                head_width=7,
                critic="sighted",
                observation_statistics="frozen",
                replay=ReplayConfig(window=48, burn_in=8, batch=16),
            ),
        ),
    ],
)
def test_a_config_of_the_first_layout_means_what_it_did(old, wanted):
    """Version 1 has separate entries `algorithm`, `ppo` and `sac`. Settings of the unused one are dropped."""
    assert from_json({"task": "WalkerStand"} | old).learner == wanted
    assert from_json({"version": 1, "task": "WalkerStand"} | old).learner == wanted


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_stored_is_read_back_whatever_its_layout(name):
    config = preset(name, "WalkerStand")
    assert from_json(stored(config)) == from_json(to_json(config)) == config
    assert stored(config)["version"] == VERSION
    old = to_json(config)
    learner = old.pop("learner")
    chosen = learner.pop("name")
    assert from_json(old | {"algorithm": chosen, chosen: learner}) == config


@pytest.mark.parametrize("version", [0, VERSION + 1, "2", None, True, 1.0])
def test_a_layout_of_the_future_is_refused(version):
    with pytest.raises(
        ConfigError, match=rf"has the version .*, but this costate reads versions 1 to {VERSION}"
    ):
        from_json(to_json(preset("gru", "LQR")) | {"version": version})


def test_settings_of_a_learner_that_is_not_chosen_are_refused():
    with pytest.raises(
        ConfigError, match="The algorithm is ppo, but settings of sac were changed, which would have no"
    ):
        with_overrides(RunConfig("LQR"), {"sac": {"head_width": 7}})
    with pytest.raises(ConfigError, match="Unknown learner 'dqn'"):
        with_overrides(RunConfig("LQR"), {"algorithm": "dqn"})
    changed = with_overrides(RunConfig("LQR"), {"algorithm": "sac", "sac": {"head_width": 7}})
    assert changed == RunConfig("LQR", learner=SACConfig(head_width=7))
    assert with_overrides(changed, {"learner": {"head_width": 8}}) == RunConfig(
        "LQR", learner=SACConfig(head_width=8)
    )


def test_defaults_are_the_papers_table():
    config = RunConfig("WalkerStand")
    assert (config.policy.hidden_size, config.rollout.environments, config.rollout.rollout_length) == (
        128,
        32,
        1000,
    )
    assert (
        config.learner.epochs,
        config.learner.minibatches,
        config.learner.learning_rate,
        config.learner.adam_epsilon,
    ) == (
        4,
        4,
        2.5e-4,
        1e-5,
    )
    assert (
        config.learner.discount,
        config.learner.trace_decay,
        config.learner.clip_epsilon,
        config.learner.max_gradient_norm,
    ) == (0.99, 0.95, 0.2, 0.5)
    assert (config.learner.value_coef, config.learner.entropy_coef, config.learner.costate_coef) == (
        0.5,
        0.01,
        0.05,
    )
    assert (config.rollout.observation_clip, config.learner.reward_clip, config.sensors.dropout) == (
        10.0,
        10.0,
        0.5,
    )
    assert config.iterations * config.rollout.steps_per_iteration == 60_000_000
    assert RunConfig("WalkerRun").iterations * 32_000 == 100_000_000


def test_authors_code_groups_every_choice_in_which_the_code_departs_from_the_text():
    fields = {
        line.split(":")[0]
        for line in differing_fields(
            to_json(preset("nc-gru", "WalkerStand")), to_json(preset("authors-code", "WalkerStand"))
        )
    }
    assert fields == {
        "policy.core.name",
        "policy.core.initialisation",
        "policy.readout.name",
        "learner.costate_hidden",
        "learner.reward_clip",
        "rollout.observation_clip",
        "rollout.random_keys",
    }


def test_hash_changes_with_any_field_and_only_then():
    config = RunConfig("WalkerStand")
    assert config_hash(config) == config_hash(RunConfig("WalkerStand"))
    others = [
        dataclasses.replace(config, seed=1),
        dataclasses.replace(config, learner=PPOConfig(epochs=3)),
        dataclasses.replace(config, policy=PolicyConfig(core=CTRNNConfig())),
    ]
    assert len({config_hash(c) for c in (config, *others)}) == 4


def test_a_field_that_an_older_version_did_not_know_has_its_default_and_leaves_the_hash():
    config = RunConfig("WalkerStand", seed=3, learner=PPOConfig(epochs=2))
    data = to_json(config)
    del data["checkpoint_every"], data["learner"]["discount"]
    assert from_json(data) == config

    @dataclasses.dataclass(frozen=True)
    class Later(RunConfig):
        invented: float = 1.0

    later = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    assert config_hash(Later(**later)) == config_hash(config)
    assert config_hash(Later(**later, invented=2.0)) != config_hash(config)


def test_overrides_change_what_they_name_and_nothing_else():
    config = RunConfig("WalkerStand", seed=3, learner=PPOConfig(epochs=2))
    changed = with_overrides(config, {"ppo": {"costate_coef": 0.1}, "policy": {"core": {"name": "ctrnn"}}})
    assert changed == RunConfig(
        "WalkerStand",
        seed=3,
        policy=PolicyConfig(core=CTRNNConfig()),
        learner=PPOConfig(epochs=2, costate_coef=0.1),
    )
    assert with_overrides(config, {}) == config
    with pytest.raises(
        ConfigError, match=r"config.learner has an unknown field 'epoch'. Did you mean epochs"
    ):
        with_overrides(config, {"ppo": {"epoch": 3}})


@pytest.mark.parametrize(("length", "cycle"), [(1000, 1), (250, 4), (300, 4), (2000, 1)])
def test_a_cycle_holds_at_least_one_whole_episode(length, cycle):
    assert RunConfig("WalkerStand", rollout=RolloutConfig(rollout_length=length)).cycle == cycle


def test_differing_fields_names_them_with_both_values():
    left, right = (
        RunConfig("WalkerStand"),
        RunConfig("WalkerStand", seed=3, learner=PPOConfig(costate_coef=0.1)),
    )
    assert differing_fields(to_json(left), to_json(right)) == (
        "learner.costate_coef: 0.05 → 0.1",
        "seed: 0 → 3",
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"task": "WalkerStnad"}, "Unknown task 'WalkerStnad'. Did you mean WalkerStand"),
        ({"steps": 100}, "steps is 100, but one iteration alone takes 32000 steps"),
        ({"steps": 0}, "steps is 0, but one iteration"),
        ({"seed": -1}, "seed is -1"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0"),
        ({"rollout": RolloutConfig(environments=30)}, "28 or 32 environments"),
        ({"rollout": RolloutConfig(fault_warmup=0.3), "sensors": SensorConfig(0.0)}, "no sensor ever fails"),
        (
            {
                "rollout": RolloutConfig(fault_warmup=0.3),
                "sensors": SensorConfig(0.5, burst_length=5.0, delay=2),
            },
            "burst_length, delay cannot set in",
        ),
        (
            {"learner": PPOConfig(learning_rate_decay="adaptive"), "diverged": "slow-down"},
            "adaptive, which would soon undo",
        ),
        (
            {"seed": 99_999_999_999_999_999_999},
            "seed is 99999999999999999999, but seeds are whole numbers from 0 to 4294967295",
        ),
        (
            {"steps": 10**20},
            "steps is 100000000000000000000, but a run has at most 999,999,999,999 environment steps",
        ),
        (
            {"checkpoint_every": 10**20},
            "checkpoint_every is 100000000000000000000, but no setting is larger than 2,147,483,647",
        ),
        ({"sensors": SensorConfig(noise=1e39)}, r"noise is 1e\+39, but no setting is larger than 3e\+38"),
        ({"learner": PPOConfig(epochs=10**20)}, "epochs is 100000000000000000000, but no setting is larger"),
        (
            {"rollout": RolloutConfig(environments=10**20)},
            "environments is 100000000000000000000, but no setting is larger",
        ),
        # Without counting to the number of streams in search of its divisors.
        (
            {"rollout": RolloutConfig(environments=999_999_999, rollout_length=1), "steps": 10**11},
            "cannot be split evenly into 4 minibatches",
        ),
        (
            {"learner": SACConfig(), "steps": 1},
            "steps is 1, but one iteration alone takes 1456 steps",
        ),
        (
            {"learner": SACConfig(), "steps": 1500},
            r"warmup_steps is 5000, so learning would start after 5,824 .* but the run ends after 1,456 "
            r"\(1 iteration of 1,456 steps\). Use at least --steps 7280",
        ),
        (
            {
                "learner": SACConfig(),
                "policy": PolicyConfig(readout=QuadraticReadoutConfig(initial_deviation=0.5)),
            },
            "initial_deviation is 0.5, but it would have no effect, because soft actor-critic learns",
        ),
    ],
)
def test_impossible_runs_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        RunConfig(**{"task": "WalkerStand", **settings})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.pop("task"), "lacks the field 'task'"),
        (lambda d: d.update(sede=1), "unknown field 'sede'. Did you mean seed"),
        (
            lambda d: d["learner"].update(epochs="four"),
            "config.learner.epochs is 'four', but it should be a whole number",
        ),
        (lambda d: d["policy"]["core"].update(name="gur"), "Unknown core 'gur'. Did you mean gru"),
        (
            lambda d: d["learner"].update(costate_hidden="now"),
            "config.learner.costate_hidden is 'now', but it should be 'after' or 'before'",
        ),
        (lambda d: d.update(policy=3), "config.policy should be an object"),
        (
            lambda d: d["policy"]["core"].update(name=5),
            "The name of a core is 5, but it should be a string, such as ",
        ),
        (
            lambda d: d["policy"]["core"].update(name=None),
            "The name of a core is None, but it should be a string",
        ),
        (
            lambda d: d["policy"]["readout"].update(name=["quadratic"]),
            r"The name of a readout is \['quadratic'\], but it should be a string",
        ),
        (
            lambda d: d["policy"]["readout"].update(name={"a": 1}),
            "The name of a readout is {'a': 1}, but it should be a string",
        ),
        (lambda d: d.update(task=["LQR"]), r"config.task is \['LQR'\], but it should be str"),
        (
            lambda d: d["learner"].update(name=["ppo"]),
            r"The name of a learner is \['ppo'\], but it should be a string",
        ),
        (
            lambda d: d.update(seed=99_999_999_999_999_999_999),
            "seed is 99999999999999999999, but seeds are whole numbers",
        ),
        (lambda d: d["sensors"].update(hide=[5]), r"config.sensors.hide\[0\] is 5, but it should be str"),
        (
            lambda d: d["learner"].update(learning_rate=10**400),
            "config.learner.learning_rate is a number of 401 digits, but it must be a finite number",
        ),
    ],
)
def test_broken_json_is_refused_with_the_place(change, message):
    data = to_json(RunConfig("WalkerStand"))
    change(data)
    with pytest.raises(ConfigError, match=message):
        from_json(data)


def _float_settings(part, path=()):
    """The paths of all settings of a config, as JSON, that are numbers with a fraction, or could be."""
    for name, value in part.items():
        if isinstance(value, dict):
            yield from _float_settings(value, (*path, name))
        elif isinstance(value, float):
            yield (*path, name)


CORES_WITH_NUMBERS = [name for name in CORES.names() if any(_float_settings(encode(CORES[name]())))]
READOUTS_WITH_NUMBERS = [name for name in READOUTS.names() if any(_float_settings(encode(READOUTS[name]())))]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"algorithm": "sac"},
        *({"policy": {"core": {"name": name}}} for name in CORES_WITH_NUMBERS),
        *({"policy": {"readout": {"name": name}}} for name in READOUTS_WITH_NUMBERS),
    ],
    ids=str,
)
def test_no_setting_is_nan_or_infinite(parts, value):
    """JSON and TOML know both, and comparisons with NaN pass by accident."""
    data = with_overrides(preset("nc-sac-gru", "LQR") if "algorithm" in parts else RunConfig("LQR"), parts)
    found = list(_float_settings(to_json(data)))
    assert ("rollout", "observation_clip") in found
    for path in found:
        change = value
        for name in reversed(path):
            change = {name: change}
        with pytest.raises(ConfigError, match=path[-1]):
            with_overrides(data, change)


@pytest.mark.parametrize("seed", [1.5, "1", True, None, 2**32])
def test_a_seed_is_a_whole_number(seed):
    with pytest.raises(ConfigError, match=r"seed is .*, but seeds are whole numbers from 0 to 4294967295"):
        check_seed(seed)


def test_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"Unknown preset 'ncgru'. Did you mean nc-gru"):
        preset("ncgru", "WalkerStand")
