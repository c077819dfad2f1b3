"""Names of variants: readable, different for different configs, and the same in later versions."""

import dataclasses
import pathlib
import re

import pytest

from costate.config.naming import BASES, LONGEST, joined, variant_name
from costate.config.presets import PRESETS, preset
from costate.config.run_config import RunConfig
from costate.envs.sensors import SensorConfig
from costate.learners import LEARNERS
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.learners.sac.config import SACConfig
from costate.policies.cores.cornn import CoRNNConfig
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.policy import PolicyConfig
from costate.policies.readouts.linear import TanhReadoutConfig
from costate.runs.run_directory import Run
from costate.training.group import describe


def ppo(**settings: object) -> RunConfig:
    return RunConfig("WalkerStand", learner=PPOConfig(**settings))  # type: ignore[arg-type]


def replaying(window: int) -> RunConfig:
    usual = preset("sac-gru", "WalkerStand")
    return dataclasses.replace(
        usual,
        learner=dataclasses.replace(
            usual.learner, replay=dataclasses.replace(usual.learner.replay, window=window)
        ),
    )


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_recognised_whatever_its_seed_and_budget(name):
    config = dataclasses.replace(
        preset(name, "WalkerStand"), seed=4, steps=64_000, checkpoint_every=7, evaluate_every=0
    )
    assert variant_name(config) == variant_name(config, name) == name


def test_every_preset_can_be_the_base_of_a_name():
    assert sorted(BASES) == sorted(PRESETS)


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "fast"])
def test_of_presets_that_are_the_same_the_one_that_was_asked_for_counts(name):
    assert preset("fast", "CheetahRun") == preset("sac-gru", "CheetahRun")
    same = preset(name, "CheetahRun")
    assert variant_name(same, "fast") == ("fast" if name == "sac-gru" else name)
    assert variant_name(same) == name


@pytest.mark.parametrize(
    ("config", "name"),
    [
        (ppo(costate_coef=0.1), "nc-gru+costate-coef=0.1"),
        (ppo(costate_coef=0.0, epochs=2), "gru+epochs=2"),
        (ppo(learning_rate=1e-5, bptt_length=250), "nc-gru+bptt-length=250+learning-rate=1e-05"),
        (ppo(reward_clip=None), "nc-gru+reward-clip=none"),
        (ppo(reward_clip=1e20), "nc-gru+reward-clip=1e20"),
        (RunConfig("WalkerStand", rollout=RolloutConfig(noise_colour=1.0)), "nc-gru+noise-colour=1"),
        (
            RunConfig("WalkerStand", sensors=SensorConfig(hide=("velocity", "height"))),
            "nc-gru+hide=velocity,height",
        ),
        (
            RunConfig("WalkerStand", policy=PolicyConfig(core=CTRNNConfig("uniform"))),
            "nc-ctrnn+core.initialisation=uniform",
        ),
        (
            RunConfig("WalkerStand", policy=PolicyConfig(core=CoRNNConfig(time_step=0.3), ensemble=5)),
            "nc-gru+core=cornn+core.time-step=0.3+ensemble=5",
        ),
        (RunConfig("WalkerStand", policy=PolicyConfig(readout=TanhReadoutConfig())), "nc-gru+readout=tanh"),
        (RunConfig("WalkerStand", diverged="slow-down"), "nc-gru+diverged=slow-down"),
        (replaying(48), "sac-gru+replay.window=48"),
    ],
)  # fmt: skip
def test_what_differs_from_the_nearest_preset_is_named_as_on_the_command_line(config, name):
    assert variant_name(config) == name


def test_a_preset_with_a_changed_setting_is_near_to_itself():
    changed = dataclasses.replace(preset("fast", "FishSwim"), sensors=SensorConfig())
    assert variant_name(changed) == "fast+mask-input=none"


def test_a_name_does_not_depend_on_how_its_config_was_asked_for():
    changed = ppo(costate_coef=0.1)
    assert {variant_name(changed, wanted) for wanted in (*PRESETS, "", "runs", "nc-gru-dd3880")} == {
        "nc-gru+costate-coef=0.1"
    }


def test_other_configs_have_other_names():
    weights = [0.01, 0.011, 0.1, 0.1 + 2.0**-54, 1.0, 11.0, 1e-5, 1e5]
    clips = [None, 1.0, 10.0, 100.0, 1e16, 1e17]
    many = {ppo(costate_coef=c, reward_clip=clip) for c in weights for clip in clips}
    long = {
        ppo(
            adam_epsilon=1e-7,
            discount=0.97,
            trace_decay=0.93,
            clip_epsilon=0.1,
            value_coef=0.4,
            entropy_coef=0.02 + i / 1000,
        )
        for i in range(10)
    }
    names = {variant_name(config).lower() for config in many | long}
    assert len(names) == len(many) + len(long) == 8 * 6 + 10
    texts = [
        ("a",),
        ("A",),
        ("a b",),
        ("a-b",),
        ("a", "b"),
        ("a,b",),
        ("none",),
        (),
        ("a/b",),
        ("a:b",),
        ("ä",),
        ("a+hide=b",),
    ]
    assert len({joined("gru", {"hide": list(groups)}).lower() for groups in texts}) == len(texts)


@pytest.mark.parametrize(
    "value", ["a b/c:d'e\"f*?$(x)", "." * 200, "ü", "-", "", "x.", "A", "~", "a\nb", "e" * 300]
)
def test_names_are_safe_for_file_systems_and_shells(value):
    for name in (
        joined("nc-gru", {"hide": [value]}),
        joined("nc-gru", {"core": value}),
        joined("nc-gru", {f"core.{value}": 1}),
    ):
        assert len(name) <= LONGEST < 100
        assert re.fullmatch(r"[a-z][a-z0-9.,_+=-]*[a-z0-9]", name)


def test_a_long_name_says_what_fits_and_ends_with_a_digest():
    config = ppo(
        adam_epsilon=1e-7,
        discount=0.97,
        trace_decay=0.93,
        clip_epsilon=0.1,
        value_coef=0.4,
        entropy_coef=0.02,
        max_gradient_norm=0.7,
    )
    name = variant_name(config)
    assert len(name) <= LONGEST
    assert re.fullmatch(
        r"nc-gru\+adam-epsilon=1e-07\+clip-epsilon=0\.1\+discount=0\.97\+.*\+[0-9a-f]{8}", name
    )


def test_a_field_that_comes_later_renames_nothing(monkeypatch):
    """A field with a default is the same in a config and in the preset that it is compared with."""

    @dataclasses.dataclass(frozen=True)
    class Later(PPOConfig):
        invented: float = 1.0

    plain = ppo(costate_coef=0.1)
    assert variant_name(plain) == "nc-gru+costate-coef=0.1"
    later = dataclasses.replace(plain, learner=Later(costate_coef=0.1))
    import costate.config.naming as naming

    monkeypatch.setitem(LEARNERS._items, "ppo", Later)
    monkeypatch.setattr(naming, "preset", lambda name, task: _with(preset(name, task), Later))
    assert variant_name(later) == "nc-gru+costate-coef=0.1"


def test_a_valid_config_has_a_name_though_its_budget_would_not_suffice_for_another():
    """The task's budget of LQR is not enough for one iteration of so many environments."""
    assert (
        variant_name(RunConfig("LQR", steps=64_000_000, rollout=RolloutConfig(environments=16_000)))
        == "nc-gru+environments=16000"
    )
    few = dataclasses.replace(
        preset("nc-gru", "CartpoleSwingup"), rollout=RolloutConfig(environments=4), steps=8000
    )
    assert variant_name(few) == "nc-gru+environments=4"


def test_what_will_run_is_described_by_its_name():
    several = RunConfig("WalkerStand", policy=PolicyConfig(ensemble=5))
    assert describe(Run(pathlib.Path("somewhere"), several)).startswith("nc-gru+ensemble=5 on WalkerStand: ")
    fast = preset("fast", "CheetahRun")
    assert describe(Run(pathlib.Path("runs/CheetahRun/fast/seed-0"), fast)).startswith("fast on CheetahRun: ")
    assert describe(Run(pathlib.Path("somewhere"), fast)).startswith("sac-gru on CheetahRun: ")


def _with(config: RunConfig, kind: type[PPOConfig]) -> RunConfig:
    values = {
        field.name: getattr(config.learner, field.name)
        for field in dataclasses.fields(PPOConfig)
        if isinstance(config.learner, PPOConfig)
    }
    return (
        config
        if isinstance(config.learner, SACConfig)
        else dataclasses.replace(config, learner=kind(**values))
    )
