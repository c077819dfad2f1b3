"""Names from other libraries, and numbers as people write them."""

import dataclasses
import inspect
from typing import Literal

import pytest

from costate._base.errors import ConfigError
from costate._base.other_names import EXPLANATIONS, OTHER_NAMES, instead_of
from costate.cli import main
from costate.cli.arguments import read_arguments, whole_number
from costate.cli.commands import train
from costate.cli.settings import settings_of
from costate.config.presets import preset
from costate.config.run_config import RunConfig, from_json, to_json, with_overrides
from costate.experiments.spec import parse_spec
from costate.training.loop import train as train_run
from costate.training.options import run_config


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Configs that the command line requests, in order."""
    monkeypatch.chdir(tmp_path)
    seen: list[RunConfig] = []

    def note(configs, outs, **_):
        seen.append(configs[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("costate.training.loop.train_together", note)
    return seen


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1000000", 10**6),
        ("1_000_000", 10**6),
        ("1e6", 10**6),
        ("1.5e6", 1_500_000),
        ("2E3", 2000),
        ("-3", -3),
    ],
)
def test_whole_numbers_are_read_as_people_write_them(text, value):
    assert whole_number(text) == value
    assert isinstance(whole_number(text), int)


@pytest.mark.parametrize("text", ["1.5", "1e-3", "nan", "inf", "x", "", "1e999999999"])
def test_what_is_no_whole_number_is_refused_by_its_text(text):
    with pytest.raises(ValueError, match=r"not a whole number|too large"):
        whole_number(text)


def test_one_million_can_be_written_as_1e6_everywhere(asked):
    assert main(["train", "LQR", "--steps", "1e6", "--environments", "3.2e1"]) == 130
    spec = parse_spec(
        'tasks = ["LQR"]\nvariants = ["nc-gru"]\nsteps = 1e6\nseeds = 1e0\n'
        "[overrides.rollout]\nenvironments = 32.0",
        "x",
    )
    configs = [
        asked[0],
        spec.runs[0].config,
        run_config("LQR", None, None, {"steps": 1e6}),
        with_overrides(preset("nc-gru", "LQR"), {"steps": 1e6}),
    ]
    assert [config.steps for config in configs] == [10**6] * 4
    assert all(type(config.steps) is int and type(config.rollout.environments) is int for config in configs)
    assert {to_json(config)["steps"] for config in configs} == {10**6}


def test_a_fraction_of_a_step_is_refused_plainly(asked, capsys):
    assert main(["train", "LQR", "--steps", "1.5"]) == 2
    assert capsys.readouterr().err.startswith("error: --steps cannot be parsed: '1.5' is not a whole number.")
    with pytest.raises(ConfigError, match=r"steps is 1\.5, but it should be a whole number"):
        run_config("LQR", None, None, {"steps": 1.5})
    with pytest.raises(ConfigError, match=r"steps is 1\.5, but it should be a whole number"):
        parse_spec('tasks = ["LQR"]\nvariants = ["gru"]\nsteps = 1.5', "x")
    with pytest.raises(ConfigError, match=r"epochs is 1\.5, but it should be a whole number"):
        from_json({"task": "LQR", "ppo": {"epochs": 1.5}})


@dataclasses.dataclass(frozen=True)
class Numbers:
    steps: int | None = None
    step: int | Literal["best"] | None = None
    rate: float | None = 0.5
    at: tuple[int, ...] = ()
    discount: float = 1


def test_numbers_may_be_none_or_a_word_where_the_field_says_so():
    words = ["--steps", "1e3", "--step", "best", "--rate", "None", "--at", "1e1", "2", "--discount", "1e-1"]
    assert read_arguments("example", Numbers, words) == Numbers(1000, "best", None, (10, 2), 0.1)
    assert read_arguments("example", Numbers, ["--step", "2e3", "--steps", "none"]) == Numbers(step=2000)
    assert read_arguments("example", Numbers, []) == Numbers()
    assert [(setting.flag, setting.value) for setting in settings_of(Numbers)][:2] == [
        ("--steps", "INT"),
        ("--step", "INT|best"),
    ]


def learners() -> dict[str, set[str]]:
    return {
        learner: {
            setting.names[0]
            for setting in settings_of(train.arguments_for(["--algorithm", learner]))
            if setting.names
        }
        for learner in ("ppo", "sac")
    }


def test_names_of_other_libraries_lead_to_settings_that_exist_and_hide_none():
    known = learners()["ppo"] | learners()["sac"] | {"--episodes"}
    for other, ours in OTHER_NAMES.items():
        assert f"--{ours.replace('_', '-')}" in known, other
    for other in (*OTHER_NAMES, *EXPLANATIONS):
        assert f"--{other.replace('_', '-')}" not in known, other
    assert not set(OTHER_NAMES) & set(EXPLANATIONS)
    # Every flag that an explanation mentions exists.
    for sentence in EXPLANATIONS.values():
        for word in sentence.replace(".", " . ").replace(",", " ").split():
            if word.startswith("--"):
                assert any(flag == word or flag.startswith(f"{word}.") for flag in known), sentence


VALUES = {
    "learning_rate": 0.002, "discount": 0.98, "environments": 8, "hidden_size": 16, "steps": 1_000_000,
    "rollout_length": 100, "epochs": 2, "minibatches": 2, "trace_decay": 0.9, "clip_epsilon": 0.1,
    "entropy_coef": 0.02, "value_coef": 0.25, "max_gradient_norm": 1.5, "target_rate": 0.01,
    "warmup_steps": 3200, "initial_temperature": 0.2, "replay.capacity": 100_000,
}  # fmt: skip


@pytest.mark.quick("lr", "gamma", "num_envs", "total_timesteps", "buffer_size")
@pytest.mark.parametrize("other", [other for other, ours in OTHER_NAMES.items() if ours in VALUES])
def test_both_names_mean_the_same_on_the_command_line_and_in_python(other, asked):
    ours = OTHER_NAMES[other]
    flag, value = f"--{ours.replace('_', '-')}", VALUES[ours]
    learner = "ppo" if flag in learners()["ppo"] else "sac"
    command = ["train", "LQR", "--algorithm", learner]
    for words in ([flag, str(value)], [f"--{other.replace('_', '-')}", str(value)], [f"--{other}={value}"]):
        assert main([*command, *words]) == 130
    asked.append(run_config("LQR", None, learner, {other: value}))
    assert asked == [asked[0]] * 4
    assert asked[0] != run_config("LQR", None, learner, {})


def test_the_task_can_be_given_by_a_flag(asked):
    for words in (["--env", "LQR"], ["--env-id=LQR"], ["--seed", "0", "--task", "LQR"], ["LQR"]):
        assert main(["train", *words]) == 130
    assert asked == [asked[0]] * 4
    assert asked[0].task == "LQR"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--batch-size", "64"], "PPO splits a rollout into --minibatches parts"),
        (["--device", "cpu"], "JAX chooses the device: set JAX_PLATFORMS=cpu"),
        (["--num-steps", "128"], "--steps is the length of training in environment steps"),
        (["--tau", "0.01"], "--target-rate is a setting of soft actor-critic, and PPO has no such setting."),
        (
            ["--buffer-size", "1e5"],
            "--replay.capacity is a setting of soft actor-critic, and PPO has no such setting.",
        ),
    ],
)
def test_what_means_something_else_here_is_explained(words, hint, capsys):
    assert main(["train", "LQR", *words]) == 2
    assert hint in capsys.readouterr().err


def test_python_and_sweeps_explain_too():
    with pytest.raises(ConfigError, match=r"Unknown option 'batch_size'\. PPO splits"):
        run_config("LQR", None, None, {"batch_size": 64})
    with pytest.raises(ConfigError, match=r"Unknown option 'tau'\. It is one of sac"):
        run_config("LQR", None, None, {"tau": 0.1})
    with pytest.raises(ConfigError, match=r"Unknown option 'buffer_size'\. It is one of sac"):
        run_config("LQR", None, None, {"buffer_size": 100})
    with pytest.raises(ConfigError, match="lr is called learning_rate here"):
        parse_spec('tasks = ["LQR"]\nvariants = ["gru"]\n[overrides.learner]\nlr = 1e-3', "x")
    assert instead_of("--num-envs") == "num_envs is called environments here."
    assert instead_of("nonsense") == ""


def test_other_commands_know_the_names_that_they_have(capsys):
    assert main(["evaluate", "nowhere", "--n-episodes", "1e1"]) == 1
    assert "There is no run directory nowhere" in capsys.readouterr().err


def test_the_settings_of_train_and_of_its_python_form_have_the_same_names():
    """Aliases are replaced before the Python form is called, so none may be one of its parameters."""
    assert not set(OTHER_NAMES) & set(inspect.signature(train_run).parameters)
    assert not set(OTHER_NAMES) & {field.name for field in dataclasses.fields(RunConfig)}
