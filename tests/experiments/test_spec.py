"""Specs of sweeps: the runs that they expand to, and that all problems of a spec are reported at once."""

import json
import pathlib
import re

import pytest

from costate import cli
from costate._base.errors import ConfigError
from costate.config.presets import preset
from costate.config.run_config import RunConfig, config_hash
from costate.envs.sensors import SensorConfig
from costate.envs.tasks import PAPER_TASKS
from costate.experiments.memory import _name
from costate.experiments.spec import EvaluationPlan, Resources, load_spec, parse_spec, preset_names
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.trained.evaluation import sensors_at


def test_a_spec_is_variants_times_tasks_times_seeds():
    spec = parse_spec(
        'tasks = ["WalkerStand", "CheetahRun"]\nvariants = ["gru", "nc-gru"]\nseeds = 3\nsteps = 64_000',
        "mine",
    )
    assert spec.name == "mine"
    assert len(spec.runs) == 12
    assert spec.variants == ("gru", "nc-gru")
    assert spec.tasks == ("WalkerStand", "CheetahRun")
    assert spec.runs[0].config == RunConfig(
        "WalkerStand", steps=64_000, learner=preset("gru", "WalkerStand").learner
    )
    assert {run.config.seed for run in spec.runs} == {0, 1, 2}
    assert all(run.folder == config_hash(run.config) for run in spec.runs)
    assert len({run.folder for run in spec.runs}) == 12


def test_overrides_variants_and_grid_are_applied_in_this_order():
    spec = parse_spec(
        """
        tasks = ["CartpoleSwingup"]
        seeds = [5, 9]
        [variants]
        plain = {}
        slow = { preset = "nc-ctrnn", ppo.learning_rate = 1e-4, ppo.epochs = 2 }
        [overrides]
        sensors.dropout = 0.25
        ppo.epochs = 8
        [grid]
        ppo.costate_coef = [0.1, 0.2]
        policy.hidden_size = [16]
        """,
        "mine",
    )
    assert spec.variants == tuple(
        f"{name} costate_coef={c} hidden_size=16" for name in ("plain", "slow") for c in ("0.1", "0.2")
    )
    plain, slow = spec.runs[0].config, spec.runs[-1].config
    assert (
        plain.seed,
        plain.sensors.dropout,
        plain.learner.epochs,
        plain.learner.costate_coef,
        plain.policy.hidden_size,
    ) == (5, 0.25, 8, 0.1, 16)
    assert slow.policy.core == CTRNNConfig()
    assert (slow.seed, slow.learner.learning_rate, slow.learner.epochs, slow.learner.costate_coef) == (
        9,
        1e-4,
        2,
        0.2,
    )


def test_the_presets_are_the_papers_experiments():
    assert preset_names() == ("better-ppo", "figure2", "figure3", "laptop", "robustness")
    figure2 = load_spec("figure2")
    assert (figure2.tasks, figure2.variants) == (PAPER_TASKS, ("gru", "nc-gru", "ctrnn", "nc-ctrnn"))
    assert len(figure2.runs) == 8 * 4 * 10
    assert {run.config.total_steps for run in figure2.runs} == {60_000_000, 100_000_000}
    assert figure2.evaluation == EvaluationPlan((0.5, 0.75), 100)
    assert figure2.resources == Resources()
    figure3 = load_spec("figure3")
    assert [run.config.learner.costate_coef for run in figure3.runs if run.config.seed == 0] == [
        0.0,
        0.01,
        0.05,
        0.1,
    ]
    # The third claim is about the runs of Figure 3.
    robustness = load_spec("robustness")
    assert {run.folder for run in robustness.runs} == {run.folder for run in figure3.runs}
    assert robustness.evaluation.dropouts == (0.0, 0.25, 0.5, 0.625, 0.75, 0.875)
    assert sum(run.config.total_steps for run in load_spec("laptop").runs) == 36_000_000


def test_everything_wrong_is_said_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_spec(
            """
            tasks = ["WalkerStnd", "CheetahRun"]
            variants = ["gru", "nc-grru"]
            seed = 3
            [grid]
            ppo.costate_coef = []
            [resources]
            cores = 0
            [evaluation]
            dropout = [1]
            episode = 3
            [overrides]
            ppo.epoch = 3
            sensor.dropout = 0.5
            """,
            "bad",
        )
    message = str(caught.value)
    assert "'bad' has 9 problems, and nothing was started" in message
    for part in (
        "unknown key 'seed'. Did you mean seeds",
        "Unknown task 'WalkerStnd'. Did you mean WalkerStand",
        "unknown preset 'nc-grru'. Did you mean nc-gru",
        "grid.ppo.costate_coef is []",
        "resources.cores is 0",
        "unknown key 'dropout'. Did you mean dropouts",
        "unknown key 'episode'. Did you mean episodes",
        "overrides has the unknown field 'ppo.epoch'. Did you mean epochs",
        "overrides has the unknown field 'sensor.dropout'. Did you mean sensors",
    ):
        assert part in message


GOOD = 'tasks = ["CheetahRun"]\nvariants = ["gru"]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "tasks is \\[\\]"),
        ("tasks = [", "not valid TOML"),
        ('tasks = ["CheetahRun"]', "variants is \\[\\], but it should list at least one preset"),
        (GOOD + "seeds = 0", "seeds is 0"),
        (GOOD + "seeds = [1, 1]", "lists a seed twice"),
        (GOOD + "seeds = [-1]", "seed is -1"),
        (GOOD + "seeds = true", "seeds is True"),
        (GOOD + "[overrides.policy.core]\nname = 5", "The name of a core is 5, but it should be a string"),
        (
            GOOD + "[grid.policy.readout]\nname = [[1]]",
            r"The name of a readout is \[1\], but it should be a string",
        ),
        ('tasks = [5]\nvariants = ["gru"]', "Unknown task '5'"),
        ('tasks = ["LQR"]\nvariants = [5]', "unknown preset 5"),
        ('tasks = ["LQR"]\n[variants.a]\npreset = [1]', "unknown preset \\[1\\]"),
        (GOOD + "[resources]\ngpus = nan", "resources.gpus is nan"),
        (GOOD + "[resources]\ncores = 99999999999999999999", "resources.cores is 99999999999999999999"),
        (
            GOOD + "seeds = 99999999999999999999",
            "seeds is 99999999999999999999, but at most 10,000 are possible",
        ),
        (
            GOOD + "seeds = [99999999999999999999]",
            "seed is 99999999999999999999, but seeds are whole numbers from 0 to",
        ),
        (
            GOOD + "[evaluation]\nepisodes = 99999999999999999999",
            "episodes is 99999999999999999999, but at most 1,000,000",
        ),
        (GOOD + "steps = 5", "steps is 5, but one iteration alone takes 32000"),
        (
            GOOD + "[overrides]\nppo.epoch = 3",
            "overrides has the unknown field 'ppo.epoch'. Did you mean epochs",
        ),
        (GOOD + "[overrides]\nsensors.dropout = 1.5", "dropout is 1.5"),
        (GOOD + '[overrides]\ntask = "WalkerRun"', "overrides sets 'task', but tasks and seeds"),
        (GOOD + "[grid]\nseed = [1, 2]", "grid sets 'seed', but tasks and seeds"),
        (GOOD + "[resources]\ncores = 1.5", "resources.cores is 1.5"),
        (GOOD + "[evaluation]\ndropouts = [2.0]", "different numbers between 0 and 1"),
        (
            'tasks = ["CheetahRun"]\n[variants]\na = { preset = "gru" }\nb = { preset = "nc-gru", '
            "ppo.costate_coef = 0 }",
            "are the same config",
        ),
        (
            'tasks = ["WalkerRun", "CheetahRun"]\nvariants = ["sac-gru", "fast"]',
            "'sac-gru' and 'fast' are the same config on CheetahRun, so",
        ),
        (
            'tasks = ["WalkerRun", "FishSwim"]\n[variants]\na = { preset = "fast", sac.discount = 0.98 }',
            "on FishSwim: The algorithm is ppo, but settings of sac were changed",
        ),
        ('tasks = ["CheetahRun"]\n[variants]\na = 3', "variants.a is 3"),
    ],
)
def test_a_spec_that_cannot_work_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_spec(text, "bad")


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            GOOD + "[evaluation]\ndropouts = [1.5]\nepisodes = 0",
            ("evaluation.dropouts: .* are \\[1.5\\]", "evaluation.episodes is 0"),
        ),
        (
            'tasks = ["LQRR"]\nvariants = ["gru"]\nsteps = -1',
            ("Unknown task 'LQRR'", "steps is -1, but it should be a whole number"),
        ),
        (
            'tasks = ["LQR"]\nvariants = ["gruu"]\nsteps = "many"',
            ("unknown preset 'gruu'", "steps is 'many', but it should be a whole number"),
        ),
        (
            GOOD + "steps = 0\n[overrides]\nppo.learning_rate = -1.0",
            ("steps is 0, but it should be", "learning_rate is -1.0"),
        ),
    ],
)
def test_one_problem_does_not_hide_another(text, messages):
    for message in messages:
        with pytest.raises(ConfigError, match=message):
            parse_spec(text, "bad")


def test_every_variant_can_be_evaluated_at_every_blackout_of_a_spec():
    """Otherwise the error would come only after training."""
    text = (
        'tasks = ["LQR"]\n[variants]\na = { sensors.burst_length = 2.0 }\nb = { sensors.dark = "hold" }\n'
        "[evaluation]\ndropouts = [0.0, 0.875, 1.0]"
    )
    spec = parse_spec(text, "bursts")
    a, b = ([sensors_at(run.config, dropout) for dropout in spec.evaluation.dropouts] for run in spec.runs)
    assert a == [
        SensorConfig(0.0),
        SensorConfig(0.875, burst_length=7.0),
        SensorConfig(1.0, burst_length=2.0),
    ]
    assert b == [SensorConfig(0.0), SensorConfig(0.875, dark="hold"), SensorConfig(1.0, dark="hold")]


@pytest.mark.parametrize(
    ("name", "budget", "runs", "steps"),
    [
        ("figure2", "full", 8 * 4 * 10, {60_000_000, 100_000_000}),
        ("figure2", "telling", 3 * 2 * 3, {60_000_000}),
        ("figure2", "walk", 2 * 2, {60_000_000}),
        ("figure2", "ctrnn", 2 * 2 * 2, {60_000_000}),
        ("figure2", "short", 8 * 4 * 2, {3_000_000}),
        ("figure3", "full", 4 * 10, {60_000_000}),
        ("figure3", "three-seeds", 4 * 3, {60_000_000}),
        ("figure3", "short", 4 * 2, {10_000_000}),
        ("better-ppo", None, 3 * 2 * 4, {10_000_000}),
    ],
)
def test_the_papers_experiments_come_in_budgets(name, budget, runs, steps):
    spec = load_spec(name, budget)
    assert len(spec.runs) == runs
    assert {run.config.total_steps for run in spec.runs} == steps
    assert spec.name == (name if budget in ("full", None) else f"{name}-{budget}")
    assert spec.description


def test_a_smaller_budget_has_runs_of_the_larger_one():
    """A sweep can begin with three seeds and continue in the same folder with ten."""
    few, many = load_spec("figure3", "three-seeds"), load_spec("figure3", "full")
    assert {run.folder for run in few.runs} < {run.folder for run in many.runs}


def test_the_first_budget_is_the_usual_one_and_unknown_ones_are_refused():
    text = (
        'tasks = ["LQR"]\nvariants = ["gru"]\n'
        "[budgets.long]\nsteps = 640_000\n[budgets.short]\nsteps = 64_000\n"
    )
    assert [parse_spec(text, "mine", budget).runs[0].config.steps for budget in (None, "long", "short")] == [
        640_000,
        640_000,
        64_000,
    ]
    with pytest.raises(ConfigError, match=r"Unknown budget 'shrot'\. .*short"):
        parse_spec(text, "mine", "shrot")
    with pytest.raises(ConfigError, match="This sweep has no budgets: leave --budget out"):
        parse_spec('tasks = ["LQR"]\nvariants = ["gru"]', "mine", "short")
    with pytest.raises(ConfigError, match=r"budgets\.short has the key 'grid'"):
        parse_spec(text + "grid = {}\n", "mine")
    with pytest.raises(ConfigError, match="budgets is 3, but it should be a table of budgets"):
        parse_spec("budgets = 3\n" + text.split("[budgets")[0], "mine")


def test_the_spec_in_the_guide_works():
    guide = (pathlib.Path(__file__).parents[2] / "docs" / "experiments.md").read_text()
    (example,) = re.findall(r"```toml\n(.*?)```", guide, flags=re.DOTALL)
    spec = parse_spec(example, "guide")
    # Two tasks, two variants, two widths, two coefficients, five seeds.
    assert len(spec.runs) == 80
    assert (spec.evaluation.episodes, spec.resources.retries) == (100, 3)


def test_an_unknown_sweep_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no sweep 'figure_3'.*Did you mean figure3"):
        load_spec("figure_3")


def test_settings_are_checked_together_and_not_one_after_the_other() -> None:
    """The budget is too small for an iteration of the preset, but not for an iteration of the variant."""
    text = (
        'tasks = ["CartpoleSwingup"]\nsteps = 2000\n[variants]\n'
        'short = { preset = "gru", rollout.environments = 4, rollout.rollout_length = 250 }'
    )
    (run,) = parse_spec(text, "short").runs
    assert (run.config.steps, run.config.iterations) == (2000, 2)


def test_another_core_has_its_own_settings_whatever_was_said_of_the_one_before() -> None:
    text = (
        'tasks = ["CartpoleSwingup"]\n[overrides]\npolicy.core = { name = "cornn", stiffness = 2.0 }\n'
        '[variants]\na = { preset = "gru" }\nb = { preset = "gru", policy.core = { name = "rnn" } }'
    )
    a, b = parse_spec(text, "cores").runs
    assert a.config.policy.core.stiffness == 2.0
    assert type(b.config.policy.core).__name__ == "RNNConfig"


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_bytes('description = "é"'.encode("latin-1"))
    with pytest.raises(
        ConfigError, match=r"mine.toml is not valid TOML: byte 15 is not UTF-8. Save the file as UTF-8."
    ):
        load_spec(str(file))


NAMES = {
    "../../evil": "it leads to another folder",
    "/tmp/x": "it leads to another folder",
    "a\\b": "it leads to another folder",
    "..": "it begins with a dot",
    ".": "it begins with a dot",
    ".hidden": "it begins with a dot",
    "": "it is empty",
    "  ": "it is empty",
    "mine ": "it begins or ends with a space",
    "red \x1b[31m": "it has control characters",
    "two\nlines": "it has control characters",
    "\u202egpj.exe": "it has control characters",
    "x" * 201: "it is too long",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_sweep_has_a_name_that_is_one_folder_and_can_be_printed(name):
    spec = 'name = {}\ntasks = ["LQR"]\nvariants = ["gru"]'
    with pytest.raises(
        ConfigError, match=rf"name is .*, but {NAMES[name]}.*To write somewhere else, use --out"
    ) as caught:
        parse_spec(spec.format(json.dumps(name)), "mine")
    assert all(character.isprintable() or character == "\n" for character in str(caught.value))
    # The same for the name of a file, if the spec has no name.
    with pytest.raises(ConfigError, match=rf"the name of the file, .*but {NAMES[name]}"):
        parse_spec('tasks = ["LQR"]\nvariants = ["gru"]', name)


@pytest.mark.parametrize("name", ["laptop", "Größe 2", "a.b", "WalkerStand, 50 %", "x" * 200])
def test_usual_names_of_sweeps_are_allowed(name):
    assert parse_spec(f'name = {json.dumps(name)}\ntasks = ["LQR"]\nvariants = ["gru"]', "mine").name == name


def test_nothing_in_a_spec_reaches_the_terminal_as_it_is(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for number, text in enumerate(
        (
            'tasks = ["LQR"]\n[variants]\n"red \\u001b[31m" = {}',
            'tasks = ["LQR"]\n[variants]\n"red \\u001b[31m" = 5',
            'tasks = ["red \\u001b[31m"]\nvariants = ["gru"]',
            'tasks = ["LQR"]\nvariants = ["red \\u001b[31m"]',
            '"red \\u001b[31m" = 1\ntasks = ["LQR"]\nvariants = ["gru"]',
            'tasks = ["LQR"]\nvariants = ["gru"]\n[grid]\ndiverged = ["red \\u001b[31m"]',
            'tasks = ["LQR"]\nvariants = ["gru"]\n[overrides]\n"red \\u001b[31m" = 1',
        )
    ):
        (tmp_path / f"{number}.toml").write_text(text)
        assert cli.main(["sweep", f"{number}.toml"]) == 1
        captured = capsys.readouterr()
        assert "\x1b" not in captured.out + captured.err
        assert "\\x1b[31m" in captured.err
    assert not (tmp_path / "sweeps").exists()


def test_the_sweep_of_a_task_with_a_namespace_is_one_folder():
    assert _name(["gym:ALE/Pong-v5", "LQR"]) == "memory-gym:ALE-Pong-v5-LQR"
    assert len(_name(["CartpoleSwingup"] * 30)) < 40
