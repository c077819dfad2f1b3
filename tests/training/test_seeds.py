"""Several seeds in one program: each is the run it would have been alone, with a folder of its own."""

import dataclasses
import shutil

import numpy as np
import pytest

from costate._base.errors import CheckpointError, ConfigError, DivergedError, RunDirectoryError
from costate.config.presets import preset
from costate.envs.factory import make_env
from costate.runs.checkpoint import folders
from costate.runs.run_directory import create_run, open_run, runs_in
from costate.training.console import AbstractReporter, Progression
from costate.training.loop import resume, resume_together, train, train_together
from costate.training.programs import fresh_states, start_episodes


class Witness(AbstractReporter):
    """Records messages and rows; stops the runs after some iterations."""

    def __init__(self, after: int | None = None) -> None:
        self.after = after
        self.said: list[str] = []
        self.shown: list[Progression] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    def progress(self, progression: Progression) -> None:
        self.shown.append(progression)
        if progression.row["iteration"] == self.after:
            raise KeyboardInterrupt

    def close(self) -> None:
        pass


def seeds_of(config, seeds):
    return [dataclasses.replace(config, seed=seed) for seed in seeds]


def numbers(run):
    return [
        {k: v for k, v in row.items() if not k.startswith("time/") and k != "training/sps"}
        for row in run.read_metrics()
    ]


@pytest.fixture(scope="module")
def pair(tmp_path_factory, small_config):
    """Two seeds that were trained together, three iterations, and who watched.

    Tests that change them change a copy.
    """
    folder, reporter = tmp_path_factory.mktemp("pair"), Witness()
    group = train_together(
        seeds_of(small_config, (0, 1)), [folder / "seed-0", folder / "seed-1"], devices=2, reporter=reporter
    )
    assert all(outcome.finished for outcome in group)
    return folder, [outcome.run for outcome in group], reporter


@pytest.mark.thorough
def test_seeds_share_a_pool_but_see_the_episodes_of_runs_of_their_own(small_config):
    """Bit for bit: first observations after masking, for three episodes in a row."""
    batch = small_config.rollout.environments
    together = make_env(small_config.task, batch, (3, 7), small_config.sensors)
    alone = [make_env(small_config.task, batch, (seed,), small_config.sensors) for seed in (3, 7)]
    for _ in range(3):
        states = fresh_states(small_config, (3, 7))
        both = start_episodes(small_config, together, states)
        for i, env in enumerate(alone):
            single = start_episodes(small_config, env, fresh_states(small_config, ((3, 7)[i],)))
            np.testing.assert_array_equal(both.timestep.observation[i], single.timestep.observation[0])
    for env in (together, *alone):
        env.close()


def test_seeds_together_equal_runs_of_their_own(pair, tmp_path, small_config):
    """Compare the first iterations: later, chaotic control amplifies the order of floating-point sums."""
    for run, seed in zip(pair[1], (0, 1), strict=True):
        alone = train(dataclasses.replace(small_config, seed=seed), tmp_path / f"alone-{seed}", devices=1).run
        assert run.config == alone.config
        first, second, _ = zip(numbers(run), numbers(alone), strict=True)
        # The first rollout is by equal weights; float32 products of a batch in another order move a swinging
        # pole by this much in 1000 steps.
        assert first[0]["training/episode_reward"] == pytest.approx(
            first[1]["training/episode_reward"], rel=1e-3
        )
        for name in ("losses/costate", "losses/value", "losses/entropy", "training/action_std"):
            assert first[0][name] == pytest.approx(first[1][name], rel=2e-2), name
        assert second[0]["training/episode_reward"] == pytest.approx(
            second[1]["training/episode_reward"], rel=5e-2
        )


def test_every_seed_has_a_complete_folder_and_the_console_shows_the_mean(pair):
    folder, _, reporter = pair
    outs = [folder / "seed-0", folder / "seed-1"]
    assert reporter.said[0].endswith(f"seeds 0, 1 together → {folder}/{{seed-0,seed-1}}")
    assert runs_in(folder) == outs
    rows = [open_run(out).read_metrics() for out in outs]
    for out, row in zip(outs, rows, strict=True):
        assert [r["env_steps"] for r in row] == [4000, 8000, 12000]
        assert (out / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
        assert len(folders(out / "checkpoints")) == 3
        assert open_run(out).read_machine()["seeds_together"] == [0, 1]
    shown = reporter.shown[-1].row
    assert shown["training/episode_reward"] == pytest.approx(
        np.mean([row[-1]["training/episode_reward"] for row in rows])
    )
    # The speed of all of them, where each folder holds its own.
    assert shown["training/sps"] == pytest.approx(2 * rows[0][-1]["training/sps"])


@pytest.mark.thorough
def test_a_group_that_was_cut_off_resumes_to_the_numbers_of_one_that_was_not(pair, tmp_path, small_config):
    with pytest.raises(KeyboardInterrupt):
        train_together(
            seeds_of(small_config, (0, 1)),
            [tmp_path / "cut" / f"seed-{i}" for i in (0, 1)],
            reporter=Witness(after=2),
        )
    # As if the cut had come between the checkpoints of the two: they continue from the newest that both have.
    newest = folders(tmp_path / "cut" / "seed-1" / "checkpoints")[-1]
    for file in newest.iterdir():
        file.unlink()
    newest.rmdir()
    reporter = Witness()
    resumed = resume_together(runs_in(tmp_path / "cut"), reporter=reporter)
    assert any(
        "seed-0 goes back from step_000000004000 to step_000000000000" in text for text in reporter.said
    )
    assert [numbers(outcome.run) for outcome in resumed] == [numbers(run) for run in pair[1]]


@pytest.mark.thorough
def test_one_of_a_group_resumes_alone_and_says_that_sums_will_be_ordered_otherwise(tmp_path, small_config):
    with pytest.raises(KeyboardInterrupt):
        train_together(
            seeds_of(small_config, (0, 1)),
            [tmp_path / "seed-0", tmp_path / "seed-1"],
            reporter=Witness(after=2),
        )
    reporter = Witness()
    assert resume(tmp_path / "seed-1", reporter=reporter).finished
    assert any(
        "seeds [1] instead of [0, 1] together" in text and "floating-point" in text for text in reporter.said
    )
    # What is left of the group has no common checkpoint any more once the other has gone on.
    assert len(numbers(open_run(tmp_path / "seed-1"))) == 3


def test_runs_that_have_no_checkpoint_in_common_are_refused(pair, tmp_path):
    shutil.copytree(pair[0], tmp_path, dirs_exist_ok=True)
    for i, folder in enumerate(folders(tmp_path / "seed-1" / "checkpoints")):
        folder.rename(folder.with_name(f"step_{999_000 + i:012d}"))
    with pytest.raises(CheckpointError, match=r"no usable checkpoint in common .*Resume them one by one"):
        resume_together([tmp_path / "seed-0", tmp_path / "seed-1"])


def started(folder, seed, together):
    """A folder that looks like a run of ``seed`` that was started with others."""
    config = dataclasses.replace(preset("nc-gru", "CartpoleSwingup"), seed=seed)
    return create_run(folder / f"seed-{seed}", config, {"seeds_together": together}, overwrite=False).path


def test_a_folder_stands_for_the_seeds_that_were_started_together_and_no_others(tmp_path):
    group = [started(tmp_path, seed, [10, 2]) for seed in (10, 2)]
    started(tmp_path, 7, [7])
    (tmp_path / "seed-x").mkdir()
    assert runs_in(tmp_path) == group
    assert runs_in(group[0]) == [group[0]]


def test_a_folder_with_several_groups_is_not_guessed_at(tmp_path):
    for seed in (0, 1, 2, 3):
        started(tmp_path, seed, [0, 1] if seed < 2 else [2, 3])
    with pytest.raises(RunDirectoryError, match=r"several groups of seeds.*seed-0, .*seed-3"):
        runs_in(tmp_path)


def test_a_folder_of_lonely_seeds_is_not_a_group(tmp_path):
    started(tmp_path, 0, [0])
    # The other of its group was deleted.
    started(tmp_path, 1, [1, 2])
    with pytest.raises(RunDirectoryError, match="no seeds that were trained together"):
        runs_in(tmp_path)


def test_a_damaged_card_is_no_obstacle(tmp_path):
    run = open_run(started(tmp_path, 3, ["3", None]))
    assert run.seeds_together == (3,)
    (run.path / "machine.json").write_text("{")
    assert run.seeds_together == (3,)
    assert run.read_machine() == {}


def test_runs_need_folders_of_their_own(tmp_path, small_config):
    with pytest.raises(ConfigError, match="2 runs need as many different folders"):
        train_together(seeds_of(small_config, (0, 1)), [tmp_path / "a", tmp_path / "a"], overwrite=True)


def test_nothing_is_made_if_one_of_the_folders_is_taken(tmp_path, small_config):
    (tmp_path / "seed-1").mkdir()
    (tmp_path / "seed-1" / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError, match="not a run directory"):
        train_together(seeds_of(small_config, (0, 1)), [tmp_path / "seed-0", tmp_path / "seed-1"])
    assert not (tmp_path / "seed-0").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [({"seed": 0}, "need different ones"), ({"seed": 1, "checkpoint_every": 7}, "nothing but their seed")],
)
def test_only_seeds_may_differ(tmp_path, small_config, change, message):
    with pytest.raises(ConfigError, match=message):
        train_together(
            [small_config, dataclasses.replace(small_config, **change)], [tmp_path / "a", tmp_path / "b"]
        )


@pytest.mark.thorough
def test_if_one_seed_diverges_the_others_are_saved(tmp_path, small_config, monkeypatch):
    import costate.training.divergence as divergence

    honest = divergence._not_finite
    # A loss of seed 1 that is not finite in iteration 2; the numbers themselves stay healthy, so that saving
    # is what is tested.
    calls = iter([[], [], [], ["losses/total"]])
    monkeypatch.setattr(divergence, "_not_finite", lambda row: next(calls, honest(row)))
    config = dataclasses.replace(small_config, checkpoint_every=100)
    with pytest.raises(
        DivergedError, match=r"of seed 1 diverged in iteration 2: losses/total .* Seeds 0 did not diverge"
    ):
        train_together(seeds_of(config, (0, 1)), [tmp_path / "seed-0", tmp_path / "seed-1"])
    assert [folder.name for folder in folders(tmp_path / "seed-0" / "checkpoints")] == [
        "step_000000000000",
        "step_000000004000",
    ]
    assert [folder.name for folder in folders(tmp_path / "seed-1" / "checkpoints")] == ["step_000000000000"]
    assert resume(tmp_path / "seed-0").finished
