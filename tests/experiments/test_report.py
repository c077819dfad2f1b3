"""Reports: numbers calculated by hand, a page that works offline, and broken runs that are listed."""

import dataclasses
import json
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from costate._base.errors import RunDirectoryError, StorageError
from costate.cli import main
from costate.config.presets import preset
from costate.config.run_config import RunConfig, config_hash
from costate.envs.sensors import SensorConfig
from costate.experiments import figures
from costate.experiments.collection import RETURN, read_collection
from costate.experiments.report import write_report
from costate.experiments.tables import Measure, areas, cells, choose_measure, complete_scores, improvements
from costate.learners.rollout import RolloutConfig
from costate.runs.run_directory import create_run
from costate.trained.evaluation import DRAWS


def make_run(
    folder: pathlib.Path,
    variant: str,
    task: str,
    seed: int,
    returns: list[float],
    evaluations: dict[float, list[float]],
    share=1.0,
    sensors: SensorConfig | None = None,
) -> RunConfig:
    """Write a run as training would, with made-up numbers: one logged return per iteration."""
    config = dataclasses.replace(
        preset(variant, task), seed=seed, steps=32_000 * len(returns), sensors=sensors or SensorConfig()
    )
    run = create_run(
        folder / config_hash(config),
        config,
        {"versions": {"jax": "1.2.3"}, "learner_devices": 1},
        overwrite=False,
    )
    done = int(len(returns) * share)
    rows = [
        {
            "iteration": i + 1,
            "env_steps": 32_000 * (i + 1),
            RETURN: value,
            "losses/costate": 0.25,
            "time/collect": 2.0,
            "time/update": 1.0,
        }
        for i, value in enumerate(returns[:done])
    ]
    run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    newest = 32_000 * done
    (run.checkpoints / f"step_{newest:012d}").mkdir()
    run.evaluations.mkdir()
    for dropout, values in evaluations.items():
        record = {"task": task, "dropout": dropout, "seed": 0, "env_steps": newest, "returns": values}
        (run.evaluations / f"{dropout}.json").write_text(json.dumps({"format": 1, "evaluation": record}))
    return config


@pytest.fixture
def folder(tmp_path):
    """Two variants on two tasks with three seeds each.

    NC-GRU is better by 100 on the walker and equal on the cheetah.
    """
    for seed in range(3):
        for variant, bonus in (("gru", 0.0), ("nc-gru", 100.0)):
            walker = 200.0 + 10.0 * seed + bonus
            make_run(
                tmp_path,
                variant,
                "WalkerStand",
                seed,
                [walker - 1, walker + 1] * 20,
                {0.5: [walker, walker + 2], 0.75: [walker / 2] * 2},
            )
            cheetah = 100.0 * seed
            make_run(
                tmp_path, variant, "CheetahRun", seed, [cheetah] * 40, {0.5: [cheetah], 0.75: [cheetah - 5.0]}
            )
    return tmp_path


def test_a_seed_has_failed_far_below_the_best_one_also_where_returns_are_costs(tmp_path):
    for seed, score in enumerate((-150.0, -160.0, -1400.0, -1600.0)):
        make_run(tmp_path, "gru", "LQR", seed, [score] * 40, {0.5: [score]})
    (cell,) = cells(read_collection(tmp_path), Measure(0.5))
    # Only the last score is below ten times the best.
    assert cell.failed == 1


def test_final_scores_are_those_of_the_evaluations_in_distribution(folder):
    collection = read_collection(folder)
    assert collection.tasks == ("WalkerStand", "CheetahRun")
    assert collection.variants == ("gru", "nc-gru")
    measure = choose_measure(collection)
    assert measure == Measure(0.5)
    table = {(cell.task, cell.variant): cell for cell in cells(collection, measure)}
    walker = table["WalkerStand", "nc-gru"]
    np.testing.assert_allclose(sorted(walker.scores), [301.0, 311.0, 321.0])
    assert (walker.mean, walker.median, walker.deviation) == (311.0, 311.0, 10.0)
    assert walker.failed == 0
    # A cheetah of return 0 is below a tenth of the best one, 200.
    assert table["CheetahRun", "gru"].failed == 1
    assert table["CheetahRun", "gru"].costate == 0.25


def test_comparisons_are_over_tasks(folder):
    collection = read_collection(folder)
    scores = complete_scores(collection, choose_measure(collection))
    ((better, worse, interval),) = improvements(scores)
    # Certain on the walker; on the cheetah both have the same three scores: a coin toss.
    assert (better, worse) == ("nc-gru", "gru")
    assert interval.estimate == pytest.approx((1.0 + 0.5) / 2)


def test_areas_are_those_of_the_degradation_curve(folder):
    np.testing.assert_allclose(
        np.sort(areas(read_collection(folder), "CheetahRun", "gru")), [-2.5, 97.5, 197.5]
    )


def test_without_evaluations_the_end_of_training_counts(tmp_path):
    make_run(tmp_path, "gru", "CheetahRun", 0, [0.0] * 10 + [30.0] * 30, {})
    collection = read_collection(tmp_path)
    measure = choose_measure(collection)
    assert measure == Measure(None)
    (cell,) = cells(collection, measure)
    assert cell.mean == 30.0
    assert np.isnan(cell.deviation)


@pytest.mark.thorough
def test_an_unfinished_run_is_drawn_but_not_scored(folder, capsys):
    make_run(folder, "gru", "CheetahRun", 7, [50.0] * 40, {0.5: [999.0]}, share=0.5)
    collection = read_collection(folder)
    cell = next(
        c
        for c in cells(collection, choose_measure(collection))
        if (c.task, c.variant) == ("CheetahRun", "gru")
    )
    assert (len(cell.scores), cell.unfinished) == (3, 1)
    assert main(["report", str(folder), "--json"]) == 0
    captured = capsys.readouterr()
    assert "unfinished: CheetahRun gru seed 7 at 640,000 steps" in captured.err
    given, written = json.loads(captured.out), json.loads((folder / "report" / "summary.json").read_text())
    assert given == written | {"written": str(folder / "report" / "index.html")}
    assert "One run has not used up the budget" in (folder / "report" / "index.html").read_text()


def test_broken_runs_are_named_and_the_rest_is_reported(folder, capsys):
    runs = sorted(path.parent for path in folder.glob("*/config.json"))
    (runs[0] / "config.json").write_text('{"config": ')
    (runs[1] / "metrics.jsonl").write_text("")
    with open(runs[2] / "metrics.jsonl", "a") as metrics:
        metrics.write('{"iteration": 41, "env_st')
    (runs[3] / "evaluations" / "0.5.json").write_text("{")
    (runs[4] / "evaluations" / "0.5.json").write_text(
        (runs[4] / "evaluations" / "0.5.json").read_text().replace("[", "[], [", 1)[:-1]
    )
    with open(runs[5] / "metrics.jsonl", "a") as metrics:
        metrics.write('{"iteration": 41, "env_steps": null}\n')
    (runs[6] / "checkpoints" / "step_000001280000.bak").mkdir()
    (runs[7] / "config.json").unlink()
    assert main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"not reported: {runs[0].name}: " in out
    assert "truncated or was altered" in out
    assert (
        f"not reported: {runs[1].name}: its log was cut or damaged: metrics.jsonl has no row after 0 steps"
        in out
    )
    for run in (3, 4):
        assert f"incomplete: {runs[run].name}: its evaluation 0.5.json cannot be read" in out
    assert f"incomplete: {runs[5].name}: metrics.jsonl is damaged in line 41, which is left out" in out
    assert f"not reported: {runs[7].name}: " in out
    assert "9 runs reported" in out
    page = (folder / "report" / "index.html").read_text()
    assert "3 not reported" in page
    assert "3 incomplete" in page
    # The other runs are still scored by their evaluations, and those without count as unfinished.
    collection = read_collection(folder)
    assert choose_measure(collection) == Measure(0.5)
    assert sum(cell.unfinished for cell in cells(collection, Measure(0.5))) == 2
    json.loads((folder / "report" / "summary.json").read_text(), parse_constant=pytest.fail)
    assert runs[0].name in page


@pytest.mark.thorough
def test_runs_of_a_sweep_carry_its_names_and_failures_are_shown(folder):
    names = {"gru": "theirs", "nc-gru": "mine"}
    entries = read_collection(folder).entries
    records = [
        {"folder": entry.run.path.name, "variant": names[entry.variant], "task": "?", "seed": 0}
        for entry in entries
    ]
    records += [
        {"folder": "abc", "variant": "late", "task": "FishSwim", "seed": 1},
        {"folder": "def", "variant": "bad", "task": "FishSwim", "seed": 2},
    ]
    (folder / "sweep.json").write_text(json.dumps({"name": "named <b>", "description": "d", "runs": records}))
    (folder / "failures").mkdir()
    (folder / "failures" / "def.json").write_text(json.dumps({"error": "exploded"}))
    collection = read_collection(folder)
    assert set(collection.variants) == {"mine", "theirs"}
    assert ("abc", "not started: FishSwim late seed 1") in collection.broken
    assert ("def", "failed: FishSwim bad seed 2: exploded") in collection.broken
    page = write_report(folder)[0].read_text()
    assert "<h1>named &lt;b&gt;</h1>" in page


def test_a_run_counts_once_and_other_budgets_are_other_variants(tmp_path):
    for seed in (0, 1):
        make_run(tmp_path / "long", "gru", "CheetahRun", seed, [500.0] * 90, {})
        make_run(tmp_path / "short", "gru", "CheetahRun", seed, [100.0] * 40, {})
        make_run(tmp_path / "again", "gru", "CheetahRun", seed, [100.0] * 40, {})
    collection = read_collection(tmp_path)
    assert collection.variants == ("gru (1.28 M steps)", "gru (2.88 M steps)")
    assert [cell.scores.tolist() for cell in cells(collection, Measure(None))] == [
        [100.0, 100.0],
        [500.0, 500.0],
    ]
    assert sum("a run counts only once" in reason for _, reason in collection.broken) == 2


def test_budgets_are_told_apart_also_where_the_tasks_own_would_be_impossible(tmp_path):
    """With this many environments, LQR's own budget is half an iteration."""
    for million in (16, 32):
        config = RunConfig("LQR", steps=million * 1_000_000, rollout=RolloutConfig(environments=16_000))
        run = create_run(tmp_path / str(million), config, {}, overwrite=False)
        run.metrics.write_text(json.dumps({"iteration": 1, "env_steps": 16_000_000, RETURN: -1.0}) + "\n")
    found = {entry.variant for entry in read_collection(tmp_path).entries}
    assert found == {"nc-gru+environments=16000 (16 M steps)", "nc-gru+environments=16000 (32 M steps)"}


def test_the_evaluation_with_most_episodes_counts_and_a_stray_one_disturbs_nothing(folder):
    run = next(
        entry
        for entry in read_collection(folder).entries
        if entry.config.task == "CheetahRun" and entry.config.seed == 2
    )
    for name, dropout, returns in (("zz", 0.5, [7.0]), ("stray", 0.9, [1.0, 2.0])):
        record = {
            "task": "CheetahRun",
            "dropout": dropout,
            "seed": 0,
            "env_steps": 1_280_000,
            "returns": returns,
        }
        (run.run.evaluations / f"{name}.json").write_text(json.dumps({"evaluation": record}))
    (run.run.evaluations / "0.5.json").write_text(
        json.dumps({"evaluation": record | {"dropout": 0.5, "returns": [200.0] * 3}})
    )
    collection = read_collection(folder)
    entry = next(entry for entry in collection.entries if entry.run.path == run.run.path)
    assert entry.evaluation(0.5).returns == (200.0, 200.0, 200.0)
    assert collection.dropouts == (0.5, 0.75)
    assert len(areas(collection, "CheetahRun", entry.variant)) == 3


def test_evaluations_count_with_the_bursts_that_training_leaves_them(tmp_path):
    """Without blackouts there are no bursts, and at 7/8 they are longer than in training.

    Bursts of any other length are another fault.
    """
    config = make_run(
        tmp_path, "gru", "CheetahRun", 0, [100.0] * 40, {}, sensors=SensorConfig(burst_length=5.0)
    )
    for dropout, burst in ((0.0, None), (0.5, 5.0), (0.625, 6.0), (0.75, None), (0.875, 7.0)):
        record = {
            "task": "CheetahRun",
            "dropout": dropout,
            "seed": 0,
            "env_steps": 1_280_000,
            "returns": [1.0],
        }
        document = {"evaluation": record | {"faults": {} if burst is None else {"burst_length": burst}}}
        (tmp_path / config_hash(config) / "evaluations" / f"{dropout}.json").write_text(json.dumps(document))
    assert read_collection(tmp_path).dropouts == (0.0, 0.5, 0.875)


def test_evaluations_with_the_random_numbers_of_two_versions_are_named(tmp_path):
    """Evaluations without a version are of the first version.

    A run with only such evaluations is consistent.
    """
    config = make_run(tmp_path, "gru", "CheetahRun", 0, [100.0] * 40, {0.5: [1.0], 0.75: [2.0]})
    assert read_collection(tmp_path).incomplete == ()
    file = tmp_path / config_hash(config) / "evaluations" / "0.5.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps({"evaluation": document["evaluation"] | {"draws": DRAWS}}))
    collection = read_collection(tmp_path)
    assert collection.dropouts == (0.5, 0.75)
    ((_, said),) = collection.incomplete
    assert "its evaluations at 0.75 blackout were made by an earlier version" in said


def test_an_evaluation_at_no_probability_is_named_and_left_out(tmp_path):
    make_run(tmp_path, "gru", "CheetahRun", 0, [100.0] * 40, {0.5: [1.0], 1.5: [2.0]})
    collection = read_collection(tmp_path)
    assert collection.dropouts == (0.5,)
    assert "1.5.json cannot be read" in collection.incomplete[0][1]


@pytest.mark.thorough
def test_a_seed_that_ended_with_an_error_is_a_failed_seed(folder):
    config = make_run(folder, "gru", "CheetahRun", 7, [50.0] * 40, {}, share=0.5)
    (folder / "failures").mkdir()
    (folder / "failures" / f"{config_hash(config)}.json").write_text(json.dumps({"error": "diverged"}))
    collection = read_collection(folder)
    cell = next(
        c
        for c in cells(collection, choose_measure(collection))
        if (c.task, c.variant) == ("CheetahRun", "gru")
    )
    assert (len(cell.scores), cell.failed, cell.unfinished) == (3, 2, 0)
    assert "CheetahRun gru seed 7: diverged" in write_report(folder)[0].read_text()


def test_a_log_that_is_damaged_in_the_middle_is_reported_without_that_line(folder, capsys):
    runs = sorted(path.parent for path in folder.glob("*/config.json"))
    lines = (runs[0] / "metrics.jsonl").read_text().splitlines(keepends=True)
    (runs[0] / "metrics.jsonl").write_text("".join([lines[0], "#" * 40 + "\n", *lines[2:]]))
    assert main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert f"incomplete: {runs[0].name}: metrics.jsonl is damaged in line 2, which is left out" in out
    assert f"incomplete: {runs[0].name}: its log has gaps: metrics.jsonl lacks iteration 2" in out
    (entry,) = (entry for entry in read_collection(folder).entries if entry.run.path == runs[0])
    assert (len(entry.rows), entry.env_steps, entry.finished) == (len(lines) - 1, 1_280_000, True)


def test_a_seed_that_failed_before_its_first_iteration_is_a_failed_seed_too(folder, capsys):
    config = make_run(folder, "gru", "CheetahRun", 7, [50.0] * 40, {}, share=0.0)
    (folder / "failures").mkdir()
    (folder / "failures" / f"{config_hash(config)}.json").write_text(json.dumps({"error": "no such robot"}))
    collection = read_collection(folder)
    cell = next(
        c
        for c in cells(collection, choose_measure(collection))
        if (c.task, c.variant) == ("CheetahRun", "gru")
    )
    # One of the other three is at 0, where the best is at 200.
    assert (len(cell.scores), cell.failed, cell.unfinished) == (3, 2, 0)
    assert main(["report", str(folder)]) == 0
    assert "unfinished: CheetahRun gru seed 7 at 0 steps, failed: no such robot" in capsys.readouterr().out


def test_a_run_that_lacks_an_evaluation_is_named_and_takes_none_from_the_others(folder):
    run = next(entry for entry in read_collection(folder).entries if entry.label == "CheetahRun gru seed 2")
    (run.run.evaluations / "0.75.json").unlink()
    collection = read_collection(folder)
    assert collection.dropouts == (0.5, 0.75)
    assert (
        run.run.path.name,
        "it has not been evaluated at 0.75 blackout, unlike the other runs",
    ) in collection.incomplete
    np.testing.assert_allclose(np.sort(areas(collection, "CheetahRun", "gru")), [-2.5, 97.5])
    # It counts at the blackout probabilities at which it was evaluated.
    cell = next(
        c
        for c in cells(collection, choose_measure(collection))
        if (c.task, c.variant) == ("CheetahRun", "gru")
    )
    assert (len(cell.scores), cell.unfinished) == (3, 0)


def test_variants_are_compared_where_all_of_them_were_evaluated(tmp_path):
    for seed in range(5):
        make_run(tmp_path, "gru", "CheetahRun", seed, [1.0] * 4, {0.5: [10.0], 0.75: [8.0], 0.9: [0.0]})
    for seed in range(3):
        make_run(tmp_path, "nc-gru", "CheetahRun", seed, [1.0] * 4, {0.5: [20.0], 0.75: [16.0]})
    collection = read_collection(tmp_path)
    assert collection.dropouts == (0.5, 0.75)
    assert collection.incomplete == ()
    np.testing.assert_allclose(
        [areas(collection, "CheetahRun", variant).mean() for variant in ("gru", "nc-gru")], [9.0, 18.0]
    )
    page = write_report(tmp_path)[0].read_text()
    assert (
        "95 % stratified bootstrap intervals, except for variants with fewer than four seeds on some task"
        in page
    )


@pytest.mark.parametrize(("seeds", "said"), [(3, False), (4, True), (9, True), (10, False)])
def test_a_report_says_what_intervals_from_few_seeds_cover(tmp_path, seeds, said):
    for seed in range(seeds):
        make_run(tmp_path, "gru", "CheetahRun", seed, [1.0] * 4, {0.5: [10.0 + seed]})
    page = write_report(tmp_path)[0].read_text()
    assert (
        "from fewer than ten seeds contained the true value in 94 to 98 % of simulated experiments" in page
    ) is said


def test_a_log_with_a_gap_is_named(folder):
    run = min(path.parent for path in folder.glob("*/config.json"))
    lines = (run / "metrics.jsonl").read_text().splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:4] + lines[9:]))
    found = read_collection(folder)
    assert (run.name, "its log has gaps: metrics.jsonl lacks iterations 5 to 9") in found.incomplete
    assert run in [entry.run.path for entry in found.entries]
    (run / "metrics.jsonl").write_text("".join(lines[:4] + lines[2:]))
    assert (
        run.name,
        "its log is not in order: rows of metrics.jsonl were repeated or moved",
    ) in read_collection(folder).broken


def test_the_summary_holds_the_statistics_of_the_page(tmp_path):
    """Eight scores 10, 20, …, 80 have mean 45, deviation √600, median 45, and interquartile mean 45 (of 30 to
    60).

    The scores of NC-GRU are 40 higher.
    """
    for seed in range(8):
        make_run(tmp_path, "gru", "CheetahRun", seed, [1.0] * 4, {0.5: [10.0 * (seed + 1)], 0.75: [0.0]})
        make_run(
            tmp_path, "nc-gru", "CheetahRun", seed, [1.0] * 4, {0.5: [10.0 * (seed + 1) + 40.0], 0.75: [0.0]}
        )
    write_report(tmp_path)
    summary = json.loads((tmp_path / "report" / "summary.json").read_text())
    plain = next(cell for cell in summary["cells"] if cell["variant"] == "gru")
    assert (plain["mean"], plain["median"], plain["deviation"]) == (45.0, 45.0, round(600.0**0.5, 2))
    interval = plain["interquartile_mean"]
    assert interval["estimate"] == 45.0
    assert 10.0 < interval["low"] < 45.0 < interval["high"] < 80.0
    assert summary["over_tasks"]["interquartile_mean"]["nc-gru"]["estimate"] == 85.0
    (pair,) = summary["over_tasks"]["improvement"]
    # Its k-th run is above the first k + 3 of the others and equal to the (k + 4)-th, if there are that many.
    assert (pair["better"], pair["worse"], pair["estimate"]) == (
        "nc-gru",
        "gru",
        pytest.approx((4 + 5 + 6 + 7 + 8 * 4 + 0.5 * 4) / 64, abs=1e-4),
    )
    robust = next(each for each in summary["robustness"] if each["variant"] == "gru")
    assert (robust["means"], robust["area"], robust["area_deviation"]) == (
        [45.0, 0.0],
        22.5,
        round(150.0**0.5, 2),
    )


def test_a_report_takes_away_the_figures_of_the_one_before(folder):
    target = write_report(folder)[0].parent
    (target / "mine.png").write_bytes(b"")
    assert (target / "robustness.png").is_file()
    for file in folder.glob("*/evaluations/0.75.json"):
        file.unlink()
    write_report(folder)
    left = {file.name for file in target.iterdir()}
    assert not left & {"robustness.png", "robustness.svg", "ablation_CheetahRun.png"}
    assert {"mine.png", "evaluation_0.5.png", "index.html"} <= left


def test_a_report_of_somebody_else_stays_as_it_is(folder):
    """A folder `report` beside the runs may well hold the page of a thesis."""
    target = folder / "report"
    target.mkdir()
    theirs = {
        "index.html": "my thesis",
        "summary.json": '{"figures": ["photo"]}',
        "photo.png": "years of work",
    }
    for name, content in theirs.items():
        (target / name).write_text(content)
    with pytest.raises(StorageError, match=r"index\.html: costate did not write the file that is there"):
        write_report(folder)
    assert {file.name: file.read_text() for file in target.iterdir()} == theirs
    (target / "index.html").unlink()
    with pytest.raises(StorageError, match=r"summary\.json: costate did not write the file that is there"):
        write_report(folder)
    (target / "summary.json").unlink()
    write_report(folder)
    assert (target / "photo.png").read_text() == "years of work"


def test_returns_that_are_costs_are_seen_in_every_figure(tmp_path):
    for seed in range(2):
        for variant, cost in (("gru", -400.0), ("nc-gru", -120.0)):
            make_run(
                tmp_path,
                variant,
                "LQR",
                seed,
                [3 * cost, cost],
                {0.5: [cost - seed], 0.75: [2 * cost - seed]},
            )
    collection = read_collection(tmp_path)
    drawn = [
        figures.learning_curves(collection),
        figures.interquartile_curves(collection),
        figures.robustness_curves(collection),
    ]
    panels = [figure.axes[0] for figure in drawn] + [
        figures.ablation(collection, "LQR", 0.5, 0.75).axes[i] for i in (0, 2, 3)
    ]
    for axes in panels:
        low, high = axes.get_ylim()
        assert low < high
        heights = np.concatenate([line.get_ydata() for line in axes.get_lines()])
        assert heights.min() < -100.0
        assert low <= heights.min() <= heights.max() <= high
    (profile,) = figures.profiles(collection, complete_scores(collection, Measure(0.5))).axes
    for line in profile.get_lines():
        assert (line.get_ydata()[0], line.get_ydata()[-1]) == (1.0, 0.0)


def test_returns_above_zero_are_drawn_from_zero_and_a_single_point_is_seen(tmp_path):
    make_run(tmp_path, "gru", "CheetahRun", 0, [300.0], {})
    (axes,) = figures.learning_curves(read_collection(tmp_path)).axes
    assert axes.get_ylim()[0] == 0.0
    assert [line.get_marker() for line in axes.get_lines()] == ["o"]


def test_legends_fit_into_their_figures(tmp_path):
    for variant in ("gru", "nc-gru", "ctrnn", "nc-ctrnn"):
        config = make_run(tmp_path, variant, "CheetahRun", 0, [300.0] * 4, {})
        record = {
            "folder": config_hash(config),
            "variant": f"{variant} learning_rate=0.0003 hidden_size=64",
            "task": "CheetahRun",
            "seed": 0,
        }
        manifest = tmp_path / "sweep.json"
        known = json.loads(manifest.read_text())["runs"] if manifest.exists() else []
        manifest.write_text(json.dumps({"name": "n", "description": "", "runs": [*known, record]}))
    figure = figures.learning_curves(read_collection(tmp_path))
    FigureCanvasAgg(figure).draw()
    (legend,) = figure.legends
    assert legend.get_window_extent().x0 >= 0.0
    assert legend.get_window_extent().x1 <= figure.bbox.width


def test_a_folder_without_runs_is_an_error(tmp_path):
    with pytest.raises(RunDirectoryError, match="holds no run that can be reported"):
        write_report(tmp_path)
    with pytest.raises(RunDirectoryError, match="no folder"):
        write_report(tmp_path / "x")


def test_the_page_is_self_contained_and_every_figure_is_also_a_file(folder):
    path, _ = write_report(folder)
    page = path.read_text()
    sources = re.findall(r'(?:src|href)="?([^" >]+)', page)
    assert sources
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "<script" not in page
    names = {file.stem for file in path.parent.glob("*.png")}
    assert names == {file.stem for file in path.parent.glob("*.svg")}
    assert {
        "learning_curves",
        "learning_curves_iqm",
        "costate_loss",
        "ablation_WalkerStand",
        "ablation_CheetahRun",
        "robustness",
        "profiles",
    } == names
    summary = json.loads((path.parent / "summary.json").read_text())
    assert len(summary["runs"]) == 12
    assert summary["runs"][0]["versions"] == {"jax": "1.2.3"}


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="Debian's chromium is not installed")
def test_the_page_opens_in_a_real_browser_without_the_network(folder, tmp_path):
    path, _ = write_report(folder)
    profile = tmp_path / "profile"
    flags = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-quic",
        "--no-first-run",
        "--disable-background-networking",
    ]
    flags += [
        "--disable-component-update",
        "--disable-sync",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={profile}",
    ]
    shot = tmp_path / "page.png"
    command = [CHROMIUM, *flags, "--window-size=1200,3000", f"--screenshot={shot}", path.resolve().as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    assert shot.read_bytes().startswith(b"\x89PNG")
    # In the browser every picture is decoded, and nothing is wider than the window.
    probe = path.with_name("probe.html")
    script = (
        "<script>onload=()=>{const i=[...document.images];document.title="
        "`images ${i.filter(x=>x.complete&&x.naturalWidth>0).length}/${i.length} wide "
        "${document.documentElement.scrollWidth<=innerWidth}`}</script>"
    )
    probe.write_text(path.read_text().replace("</body>", f"{script}</body>"))
    command = [
        CHROMIUM,
        *flags,
        "--window-size=1200,900",
        "--dump-dom",
        "--virtual-time-budget=5000",
        probe.resolve().as_uri(),
    ]
    dom = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
    title = re.search(r"<title>(.*?)</title>", dom).group(1)
    assert title == "images 7/7 wide true"


@pytest.mark.thorough
def test_runs_that_were_aligned_are_shown_beside_each_other(folder):
    """A section appears with the numbers of every aligned run."""
    likeness = {
        name: {"probe_r2": 0.25, "cca": 0.5, "cka": 0.1}
        for name in ("memory", "untrained memory", "observation", "true state")
    }
    cosine = {"memory": 0.6, "untrained memory": 0.0, "memory, shuffled in time": 0.5}
    runs = [entry.run for entry in read_collection(folder).entries if entry.config.seed < 2][:2]
    for gap, run in enumerate(runs):
        document = {
            "format": 1, "critic_cosine": cosine, "implied_cosine": {"closed loop": cosine},
            "likeness": {"closed loop": likeness, "critic": likeness},
            "hamiltonian_gap": {"closed loop": {"policy": 0.1 + gap, "shuffled": 0.5}},
        }  # fmt: skip
        (run.path / "alignment").mkdir()
        (run.path / "alignment" / "alignment.json").write_text(json.dumps(document))
    page, collection = write_report(folder)
    html = page.read_text()
    assert "Hidden state against true co-states" in html
    assert "0.25 ± 0.00" in html
    assert "0.60 ± 0.71" in html
    assert len(json.loads((page.parent / "summary.json").read_text())["alignment"]) == 2
    assert {entry.config.task for entry in collection.entries} >= {run.config.task for run in runs}


def test_disagreement_is_drawn_and_named_for_ensembles_alone(folder):
    assert "Disagreement about the co-state" not in write_report(folder)[0].read_text()
    one = next(entry for entry in read_collection(folder).entries if entry.variant == "nc-gru")
    rows = [
        json.loads(line) | {"costate/spread": 0.1 * number}
        for number, line in enumerate(one.run.metrics.read_text().splitlines())
    ]
    one.run.metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    figure = figures.spread_curves(read_collection(folder))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["nc-gru (1 seed)"]
    ((line,),) = [axes.lines for axes in figure.axes if axes.get_visible()]
    assert (
        line.get_color()
        == figure.legends[0].get_lines()[0].get_color()
        == figures.colour(read_collection(folder), "nc-gru")
    )
    assert figure.axes[0].get_title() == one.config.task
    assert "Disagreement about the co-state" in write_report(folder)[0].read_text()
