"""The command line, used as a user would."""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from costate.cli import COMMANDS, main
from costate.config.presets import PRESETS, preset
from costate.policies.cores import CORES
from costate.runs.checkpoint import folders
from costate.runs.run_directory import open_run

SMALL = [
    "CartpoleSwingup",
    "--environments",
    "4",
    "--hidden-size",
    "16",
    "--epochs",
    "1",
    "--minibatches",
    "2",
    "--checkpoint-every",
    "1",
]
NAME = "nc-gru+environments=4+epochs=1+hidden-size=16+minibatches=2"


def costate(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "costate.cli", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        **options,
    )


def numbers(path) -> list[dict[str, float]]:
    return [
        {k: v for k, v in row.items() if not k.startswith("time/") and k != "training/sps"}
        for row in open_run(path).read_metrics()
    ]


def wait_for_rows(path, count: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 240
    while time.monotonic() < deadline and process.poll() is None:
        if path.exists() and path.read_text().count("\n") >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"{path} never had {count} rows; the process said {process.communicate()}")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """An undisturbed run, trained through the command line."""
    path = tmp_path_factory.mktemp("cli") / "whole"
    result = costate("train", *SMALL, "--steps", "40_000", "--out", str(path))
    assert result.returncode == 0, result.stderr
    return path, result.stdout


def test_train_says_what_runs_where_it_goes_and_how_it_went(whole):
    path, output = whole
    lines = output.splitlines()
    assert (
        lines[0] == f"{NAME} on CartpoleSwingup: 40,000 steps (10 iterations), 50% blackout, c₃ = 0.05, "
        f"seed 0 → {path}"
    )
    assert lines[1].startswith("compiled in ")
    assert lines[2].split() == ["steps", "return", "co-state", "KL", "expl.var", "steps/s", "left"]
    assert len({len(line) for line in lines[2:-2]}) == 1, "the table is aligned"
    assert lines[-3].split()[0] == "40,000"
    assert lines[-2].startswith("return in training, with exploration noise: ")
    assert lines[-1].startswith(f"done: {path}")


@pytest.mark.thorough
def test_several_seeds_train_together_stop_together_and_resume_together(tmp_path):
    """Train four seeds, press Ctrl-C, and resume from the folder that was printed."""
    command = [sys.executable, "-m", "costate.cli", "train"]
    options = [
        "--seeds",
        "4",
        "--steps",
        "8000",
        "--environments",
        "4",
        "--minibatches",
        "2",
        "--hidden-size",
        "8",
        "--out",
        "group",
    ]
    process = subprocess.Popen(
        [*command, "CartpoleSwingup", *options],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    for line in process.stdout:
        if line.startswith("compiled in"):
            process.send_signal(signal.SIGINT)
            break
    output, _ = process.communicate(timeout=200)
    assert process.returncode == 130, output
    assert "continue with: costate train --resume group" in output
    resumed = subprocess.run(
        [*command, "--resume", "group"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.splitlines()[-1].startswith(
        "done: group/ (seed-0, seed-1, seed-2, seed-3, each with metrics.jsonl"
    )
    for seed in range(4):
        assert len((tmp_path / "group" / f"seed-{seed}" / "metrics.jsonl").read_text().splitlines()) == 2


def test_several_seeds_do_not_go_into_a_run(whole, capsys):
    assert main(["train", "CartpoleSwingup", "--seeds", "2", "--out", str(whole[0])]) == 1
    assert "is a run itself" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_killed_run_resumes_to_the_same_numbers(whole, tmp_path):
    path = tmp_path / "killed"
    command = [sys.executable, "-m", "costate.cli", "train", *SMALL, "--steps", "40_000", "--out", str(path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_rows(path / "metrics.jsonl", 3, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert len(numbers(path)) < 10
    result = costate("train", "--resume", str(path))
    assert result.returncode == 0, result.stderr
    assert "resumed at step" in result.stdout.splitlines()[0]
    assert numbers(path) == numbers(whole[0])


@pytest.mark.thorough
def test_ctrl_c_saves_and_says_how_to_continue(whole, tmp_path):
    path = tmp_path / "stopped"
    command = [
        sys.executable,
        "-m",
        "costate.cli",
        "train",
        *SMALL,
        "--steps",
        "40_000",
        "--out",
        str(path),
        "--checkpoint-every",
        "100",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_rows(path / "metrics.jsonl", 2, process)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert output.splitlines()[-1] == f"stopped and saved; continue with: costate train --resume {path}"
    saved = int(folders(path / "checkpoints")[-1].name.removeprefix("step_"))
    assert saved == numbers(path)[-1]["env_steps"] >= 8000
    assert (path / "learning_curve.png").exists()
    assert costate("train", "--resume", str(path)).returncode == 0
    assert numbers(path) == numbers(whole[0])


def test_a_disk_that_is_full_is_one_clear_paragraph_and_an_exit_code(tmp_path):
    """The operating system refuses files beyond 20 kB here, as it would on a full disk."""
    arguments = ["train", *SMALL, "--steps", "8000", "--out", str(tmp_path / "run")]
    limited = [
        "bash",
        "-c",
        'ulimit -f 20 && exec "$@"',
        "bash",
        sys.executable,
        "-m",
        "costate.cli",
        *arguments,
    ]
    result = subprocess.run(limited, capture_output=True, text=True, timeout=300)
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: Could not write {tmp_path / 'run' / 'checkpoints'}")
    assert "Traceback" not in result.stderr
    assert not list((tmp_path / "run").rglob("*partial*"))


@pytest.mark.thorough
def test_a_disk_that_fills_up_later_does_not_hang(tmp_path):
    """The first checkpoint fits below 60 kB; the metrics grow beyond it some iterations later."""
    small = [
        "CartpoleSwingup",
        "--environments",
        "2",
        "--hidden-size",
        "8",
        "--epochs",
        "1",
        "--minibatches",
        "1",
        "--checkpoint-every",
        "1000",
    ]
    arguments = [
        "train",
        *small,
        "--rollout-length",
        "50",
        "--steps",
        "100_000",
        "--out",
        str(tmp_path / "run"),
    ]
    limited = [
        "bash",
        "-c",
        'ulimit -f 60 && exec "$@"',
        "bash",
        sys.executable,
        "-m",
        "costate.cli",
        *arguments,
    ]
    # Without a compilation cache, whose files would not fit either: JAX only warns about those.
    environment = os.environ | {"JAX_ENABLE_COMPILATION_CACHE": "false"}
    result = subprocess.run(limited, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 1, result.stdout
    assert result.stderr.startswith(f"error: Could not write {tmp_path / 'run'}")
    assert "Traceback" not in result.stderr
    assert folders(tmp_path / "run" / "checkpoints")


@pytest.mark.thorough
def test_a_reader_that_goes_away_stops_the_run_which_is_saved(tmp_path):
    path = tmp_path / "run"
    command = [
        sys.executable,
        "-m",
        "costate.cli",
        "train",
        *SMALL,
        "--steps",
        "4_000_000",
        "--out",
        str(path),
        "--checkpoint-every",
        "1000",
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_rows(path / "metrics.jsonl", 1, process)
    process.stdout.close()
    assert process.wait(timeout=120) == 141
    assert "Traceback" not in process.stderr.read()
    assert 0 < int(folders(path / "checkpoints")[-1].name.removeprefix("step_")) < 4_000_000


def test_resume_with_another_setting_names_the_field(whole, capsys):
    assert main(["train", "--resume", str(whole[0]), "--costate-coef", "0.1"]) == 1
    assert "learner.costate_coef: 0.05 → 0.1" in capsys.readouterr().err
    assert main(["train", "WalkerStand", "--resume", str(whole[0])]) == 1
    assert "task: 'CartpoleSwingup' → 'WalkerStand'" in capsys.readouterr().err
    assert main(["train", "--resume", str(whole[0]), "--core", "ctrnn"]) == 1
    assert "policy.core.name: 'gru' → 'ctrnn'" in capsys.readouterr().err
    assert main(["train", "--resume", str(whole[0]), "--readout", "tanh"]) == 1
    assert "policy.readout.name: 'quadratic' → 'tanh'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", [["--preset", "gru"], ["--out", "elsewhere"], ["--overwrite"]])
def test_flags_that_mean_nothing_to_a_resumed_run_are_refused(whole, capsys, flag):
    assert main(["train", "--resume", str(whole[0]), *flag]) == 1
    assert f"{flag[0]} cannot be given with --resume" in capsys.readouterr().err


@pytest.mark.thorough
def test_a_truncated_checkpoint_is_named_and_the_run_goes_on_from_the_one_before(tmp_path, capsys):
    path = tmp_path / "run"
    assert main(["train", *SMALL, "--steps", "8000", "--out", str(path)]) == 0
    capsys.readouterr()
    file = folders(path / "checkpoints")[-1] / "state.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    assert main(["train", "--resume", str(path)]) == 0
    output = capsys.readouterr().out
    assert f"warning: {file} is truncated or was altered" in output
    assert "resumed at step 4,000" in output


def test_evaluate_prints_the_summary_and_writes_every_return(whole, capsys):
    assert main(["evaluate", str(whole[0]), "--dropout", "0.75", "--episodes", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "CartpoleSwingup at 75% blackout, 4 episodes, checkpoint of step 40,000" in lines
    assert any(
        line.startswith("return: mean ") and "median" in line and "interquartile range" in line
        for line in lines
    )
    file = pathlib.Path(lines[-1].removeprefix("written: "))
    assert len(json.loads(file.read_text())["evaluation"]["returns"]) == 4


def test_evaluate_refuses_more_episodes_than_anybody_can_wait_for(whole, capsys):
    assert main(["evaluate", str(whole[0]), "--episodes", "99999999999999999999"]) == 1
    assert (
        "error: episodes is 99999999999999999999, but at most 1,000,000 are possible. Give a smaller number."
        in capsys.readouterr().err
    )


def test_evaluate_gives_a_script_one_document(whole, capsys):
    assert main(["evaluate", str(whole[0]), "--episodes", "3", "--json"]) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    returns = found["evaluation"]["returns"]
    assert len(returns) == 3
    assert found["summary"]["mean"] == pytest.approx(sum(returns) / 3)
    assert captured.err.startswith(f"evaluating {whole[0]} ({NAME}): 3 episodes\n")


def test_evaluate_plays_each_of_several_values(whole, capsys):
    run = str(whole[0])
    assert (
        main(
            [
                "evaluate",
                "--dropout",
                "0.5",
                "0.75",
                "--noise=0.1",
                run,
                "--delay",
                "0",
                "1e0",
                "--episodes",
                "3",
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    played = [line for line in lines if line.startswith("CartpoleSwingup at ")]
    assert [line.partition(", 3 episodes")[0].removeprefix("CartpoleSwingup at ") for line in played] == [
        "50% blackout, noise 0.1",
        "50% blackout, noise 0.1, delay 1",
        "75% blackout, noise 0.1",
        "75% blackout, noise 0.1, delay 1",
    ]
    files = [pathlib.Path(file) for file in lines[-1].removeprefix("written: ").split(", ")]
    assert len(set(files)) == 4
    assert (
        main(["evaluate", run, "--dropout", "0.5", "0.75", "--noise", "0.1", "--episodes", "3", "--json"])
        == 0
    )
    found = json.loads(capsys.readouterr().out)
    # The returns equal those of single evaluations.
    alone = [json.loads(file.read_text())["evaluation"] for file in (files[0], files[2])]
    assert [one["evaluation"]["returns"] for one in found["evaluations"]] == [one["returns"] for one in alone]
    assert found["random_controls"]["episodes"] == 32


def test_nothing_is_played_if_one_of_several_values_cannot_be(whole, capsys):
    assert main(["evaluate", str(whole[0]), "--dropout", "0.5", "1.5", "--episodes", "3"]) == 1
    captured = capsys.readouterr()
    assert "dropout is 1.5, but a probability lies between 0 and 1" in captured.err
    assert captured.out == ""


def test_evaluate_says_what_random_controls_return(whole, capsys):
    assert main(["evaluate", str(whole[0]), "--episodes", "3"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("random controls: "))
    mean = float(line.removeprefix("random controls: ").partition(" ")[0])
    # A pole that hangs down earns nothing, and one that random controls throw about passes the top now and
    # then.
    assert 0.0 < mean < 150.0
    assert line.endswith("(32 episodes)")


def test_tasks_are_listed_with_sizes_and_budgets(capsys):
    assert main(["tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    # A blank line, three families, and a line on own tasks follow.
    assert len(lines) == 1 + 51 + 6 + 6
    assert [line.split()[0] for line in lines[-5:]] == [
        "envpool:ID",
        "gym:ID",
        "playground:TASK",
        "Tasks",
        "`costate",
    ]
    walker_run = next(line for line in lines if line.startswith("WalkerRun"))
    assert walker_run.split() == ["WalkerRun", "24", "6", "0.025", "1000", "100,000,000", "envpool", "yes"]
    pendulum = next(line for line in lines if line.startswith("TorquePendulum"))
    assert pendulum.split() == ["TorquePendulum", "3", "1", "0.05", "200", "8,000,000", "jax"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "WalkerStnad"], "Unknown task 'WalkerStnad'. Did you mean WalkerStand"),
        (["train", "walkerstand"], "Did you mean WalkerStand"),
        (["train"], "No task was given. For example: costate train WalkerStand."),
        (["train", "WalkerStand", "--core", "gur"], "Unknown core 'gur'. Did you mean gru"),
        (
            ["train", "WalkerStand", "--readout", "quadratc"],
            "Unknown readout 'quadratc'. Did you mean quadratic",
        ),
        (
            ["train", "WalkerStand", "--dropout", "1.5"],
            "dropout is 1.5, but a probability lies between 0 and 1",
        ),
        (["train", "WalkerStand", "--seeds", "0"], "seeds is 0, but at least 1 seed is needed"),
        (
            ["train", "WalkerStand", "--devices", "64"],
            "devices is 64, but JAX sees 2 (cpu). Numbers that work: 1, 2.",
        ),
        (
            ["train", "WalkerStand", "--devices", "0"],
            "cannot be split evenly over 0. Numbers that work: 1, 2.",
        ),
        (["train", "WalkerStand", "--environments", "30"], "28 or 32 environments"),
        (["train", "WalkerStand", "--steps", "1000"], "one iteration alone takes 32000 steps"),
        (
            ["train", "WalkerStand", "--algorithm", "sac", "--replay.capacity", "300"],
            "Use a capacity of at least 384",
        ),
        (
            ["train", "WalkerStand", "--algorithm", "sac", "--replay.capacity", "1000000000000"],
            "GB are free. Use a smaller --replay.capacity",
        ),
        (
            ["train", "WalkerStand", "--algorithm", "sac", "--replay.batch", "5", "--devices", "2"],
            "5 streams of a minibatch cannot be split evenly",
        ),
        (
            ["train", "WalkerStand", "--algorithm", "sac", "--readout", "bang-bang"],
            "Use --readout quadratic, or --algorithm ppo.",
        ),
        (
            ["train", "WalkerStand", "--algorithm", "sac", "--preset", "gru"],
            "The preset gru is one of ppo, but --algorithm is sac.",
        ),
        (["train", "--resume", "nowhere"], "There is no run directory nowhere"),
        (["evaluate", "nowhere"], "There is no run directory nowhere"),
        (["tran"], "Unknown command 'tran'. Did you mean train"),
        (
            ["train", "LQR", "--core", "frame-stack", "--core.frames", "1000000000"],
            "frames is 1000000000, but at most 10,000 are possible.",
        ),
        (["video"], "No run was given. Give the folder of a run"),
        (["view"], "0 runs were given, but one or two can be viewed."),
        (
            ["train", "LQR", "--seed", "99999999999999999999"],
            "seed is 99999999999999999999, but seeds are whole numbers from 0 to 4294967295.",
        ),
        (
            ["train", "LQR", "--seeds", "99999999999999999999"],
            "seeds is 99999999999999999999, but at most 10,000 are possible.",
        ),
        (
            ["train", "LQR", "--algorithm", "sac", "--replay.capacity", "99999999999999999999"],
            "but at most 1,000,000,000,000 are possible.",
        ),
        (
            ["bench", "LQR", "--seeds", "99999999999999999999"],
            "seeds is 99999999999999999999, but at most 10,000 are possible.",
        ),
        (
            ["memory", "LQR", "--seeds", "99999999999999999999"],
            "seeds is 99999999999999999999, but at most 10,000 are possible.",
        ),
        (
            ["train", "LQR", "--observation-clip", "nan"],
            "observation_clip is nan, but it must be a finite number",
        ),
        (["train", "LQR", "--learning-rate", "inf"], "learning_rate is inf, but it must be a finite number"),
        (
            ["align", "nowhere", "--horizon", "99999999999999999999"],
            "horizon is 99999999999999999999, but at most 1,000,000 are possible.",
        ),
        (
            ["train", "LQR", "--algorithm", "sac", "--steps", "1"],
            "steps is 1, but one iteration alone takes 1456 steps",
        ),
    ],
)
def test_bad_input_is_one_clear_paragraph_and_a_non_zero_exit(
    arguments, message, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("error: ")
    assert not list(tmp_path.iterdir()), "nothing is written"


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_command(command, capsys):
    assert main(["--help"]) == 0
    assert command in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    assert f"usage: costate {command}" in capsys.readouterr().out


def test_help_of_train_shows_every_core_and_the_flags_of_the_readme(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--help"])
    output = capsys.readouterr().out
    wanted = (
        "--core",
        "--costate-coef",
        "--dropout",
        "--steps",
        "--seed",
        "--out",
        "--resume",
        *CORES.names(),
        *PRESETS,
    )
    assert all(word in output for word in wanted)


def test_help_of_train_shows_the_settings_of_the_learner_that_was_asked_for(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["train", "--algorithm", "sac", "--help-all"])
    output = capsys.readouterr().out
    assert all(
        word in output
        for word in (
            "--replay.capacity",
            "--replay.burn-in",
            "--target-entropy",
            "--costate-memory",
            "--costate-coef",
        )
    )
    assert "--clip-epsilon" not in output


@pytest.mark.parametrize(("task", "critic"), [("LQG", "recurrent"), ("LQR", "sighted")])
def test_a_preset_is_that_of_the_task_wherever_it_stands(task, critic, tmp_path, monkeypatch):
    """LQG hides part of its state, so its critic needs a memory."""
    monkeypatch.chdir(tmp_path)
    seen = []

    def note(configs, outs, **_):
        seen.append(configs[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("costate.training.loop.train_together", note)
    assert main(["train", task, "--algorithm", "sac"]) == 130
    assert main(["train", "--preset", "nc-sac-gru", "--seed", "3", task]) == 130
    other = {"LQG": "LQR", "LQR": "LQG"}[task]
    assert main(["train", "--algorithm", "sac", "--out", other, task]) == 130
    assert main(["train", "--algorithm", "sac", "--overwrite", task]) == 130
    assert [(config.task, config.learner.critic) for config in seen] == [(task, critic)] * 4


def test_the_learner_of_the_fast_preset_is_that_of_its_task(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    seen = []

    def note(configs, outs, **_):
        seen.append(configs[0])
        raise KeyboardInterrupt

    monkeypatch.setattr("costate.training.loop.train_together", note)
    for task, algorithm in (("FishSwim", "ppo"), ("WalkerRun", "sac")):
        assert main(["train", task, "--preset", "fast"]) == 130
        assert main(["train", task, "--preset", "fast", "--algorithm", algorithm]) == 130
        assert seen == [preset("fast", task)] * 2
        seen.clear()
    # A part that the preset has anyway keeps the preset's settings.
    assert main(["train", "FishSwim", "--preset", "fast", "--readout", "quadratic", "--core", "gru"]) == 130
    assert seen == [preset("fast", "FishSwim")]
    capsys.readouterr()
    for command in ("train", "bench"):
        assert main([command, "FishSwim", "--preset", "fast", "--algorithm", "sac"]) == 1
        assert (
            "The preset fast is one of ppo, but --algorithm is sac. Presets of sac on FishSwim: sac-gru"
            in capsys.readouterr().err
        )
    # The error is about the unknown task, not about the learner.
    assert main(["train", "FishSwimm", "--preset", "fast", "--algorithm", "ppo"]) == 1
    assert "Did you mean FishSwim" in capsys.readouterr().err


def test_presets_change_the_defaults_and_flags_change_the_presets(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []

    def note(configs, outs, **_):
        seen.append((configs[0], outs[0]))
        raise KeyboardInterrupt

    monkeypatch.setattr("costate.training.loop.train_together", note)
    assert main(["train", "WalkerStand", "--preset", "ctrnn"]) == 130
    assert (
        main(
            [
                "train",
                "WalkerStand",
                "--preset",
                "authors-code",
                "--core",
                "ctrnn",
                "--core.initialisation",
                "uniform",
            ]
        )
        == 130
    )
    assert main(["train", "WalkerStand", "--preset", "gru", "--costate-coef", "0.1", "--seed", "3"]) == 130
    assert (
        main(["train", "WalkerStand", "--algorithm", "sac", "--costate-coef", "0.1", "--replay.batch", "8"])
        == 130
    )
    assert main(["train", "WalkerStand", "--preset", "sac-ctrnn"]) == 130
    assert (
        main(
            [
                "train",
                "WalkerStand",
                "--preset",
                "ncp",
                "--readout",
                "bang-off-bang",
                "--readout.fuel-weight",
                "0.5",
            ]
        )
        == 130
    )
    (ctrnn, out), (authors, _), (gru, seeded), (off_policy, _), (plain, plain_out), (fuel, _) = seen
    assert (
        type(fuel.policy.core).__name__,
        fuel.policy.readout.fuel_weight,
        fuel.policy.readout.influence,
    ) == ("CostateCellConfig", 0.5, "constant")
    assert ctrnn.learner.costate_coef == 0.0
    assert type(ctrnn.policy.core).__name__ == "CTRNNConfig"
    assert str(out) == os.path.join("runs", "WalkerStand", "ctrnn", "seed-0")
    assert authors.learner.costate_hidden == "before"
    assert (type(authors.policy.core).__name__, authors.policy.core.initialisation) == (
        "CTRNNConfig",
        "uniform",
    )
    assert (gru.learner.costate_coef, gru.seed) == (0.1, 3)
    assert str(seeded).endswith("seed-3")
    assert (
        off_policy.learner_name,
        off_policy.costate_coef,
        off_policy.learner.replay.batch,
        off_policy.rollout.environments,
    ) == ("sac", 0.1, 8, 16)
    assert (plain.learner_name, plain.costate_coef, type(plain.policy.core).__name__) == (
        "sac",
        0.0,
        "CTRNNConfig",
    )
    assert str(plain_out) == os.path.join("runs", "WalkerStand", "sac-ctrnn", "seed-0")
