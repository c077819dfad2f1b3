"""``--overwrite`` replaces a run and nothing else. The old run is renamed first and removed last."""

import json
import os
import pathlib
import shutil
from collections.abc import Iterator

import pytest
from forked import Forge, forge

from costate._base.errors import CostateError, RunDirectoryError
from costate.cli import main
from costate.config.run_config import RunConfig
from costate.runs.run_directory import check_free, create_run, held, open_run, recover_run

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "format_1"
NEW = RunConfig("LQR", seed=7)


def everything_in(folder: pathlib.Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.fixture
def run(tmp_path: pathlib.Path) -> pathlib.Path:
    """A run after training, with a replay beside its checkpoints."""
    run = tmp_path / "place" / "seed-0"
    shutil.copytree(FIXTURES / "sac", run)
    # Added by hand when the fixture was made.
    for name in ("expected.json", "policy.costate"):
        (run / name).unlink()
    with held(run):
        return run


def test_a_run_of_an_earlier_version_is_replaced_whole(run: pathlib.Path) -> None:
    create_run(run, NEW, {}, overwrite=True)
    assert open_run(run).config == NEW
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "config.json", "machine.json"]
    assert [path.name for path in run.parent.iterdir()] == ["seed-0"]


PROJECTS = {
    "any config.json": '{"name": "my-app"}',
    "a config that is no object": "[1, 2]",
    "a config that is no JSON": "{",
    "a config with some of the fields": '{"format": 1, "config": {"task": "LQR"}}',
    "a config with another kind of hash": (
        '{"format": 1, "hash": "?", "config": {"task": "LQR", "seed": 0, "policy": {}}}'
    ),
}


@pytest.mark.parametrize("what", PROJECTS)
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_strangers_project_is_refused_whatever_its_config_json_says(
    what: str, overwrite: bool, tmp_path: pathlib.Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "config.json").write_text(PROJECTS[what])
    before = everything_in(project)
    with pytest.raises(
        RunDirectoryError,
        match=r"project is not a run directory: its config\.json was not written by costate",
    ):
        create_run(project, NEW, {}, overwrite=overwrite)
    assert everything_in(project) == before


FOREIGN = (
    "thesis.tex", ".git/HEAD", "notes/idea.txt", "checkpoints/notes.txt",
    "checkpoints/step_000000000000/notes.txt", "milestones/best.pt", "checkpoints/replay/notes.txt",
    "evaluations/plot.py", "videos/holiday.mp4", "export/controller.cpp", "export/numpy/robot.py",
    "report/thesis.tex", "alignment/thesis.png", "best/notes.txt", "wandb/thesis.tex", "metrics.jsonl.bak",
    "config.json.orig",
)  # fmt: skip


@pytest.mark.parametrize("name", FOREIGN)
def test_a_run_with_something_of_somebody_else_in_it_is_refused_and_that_is_named(
    name: str, run: pathlib.Path
) -> None:
    (run / name).parent.mkdir(parents=True, exist_ok=True)
    (run / name).write_text("years of work")
    before = everything_in(run)
    named = ".git" if name.startswith(".git") else "notes" if name.startswith("notes") else name
    with pytest.raises(
        RunDirectoryError,
        match=rf"seed-0 holds files that costate did not write: {named}\. Nothing was .* Move your files",
    ):
        create_run(run, NEW, {}, overwrite=True)
    assert everything_in(run) == before
    assert [path.name for path in run.parent.iterdir()] == ["seed-0"]


def test_the_working_directory_its_parents_and_home_are_refused(
    run: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = everything_in(run)
    monkeypatch.chdir(run)
    for path in (pathlib.Path(), run):
        with pytest.raises(RunDirectoryError, match="is the working directory"):
            create_run(path, NEW, {}, overwrite=True)
    monkeypatch.chdir(run / "checkpoints")
    for path in (pathlib.Path(".."), run):
        with pytest.raises(RunDirectoryError, match="contains the working directory"):
            create_run(path, NEW, {}, overwrite=True)
    monkeypatch.chdir("/")
    monkeypatch.setenv("HOME", str(run))
    with pytest.raises(RunDirectoryError, match="is or contains your home directory"):
        create_run(run, NEW, {}, overwrite=True)
    assert everything_in(run) == before


def test_a_run_is_not_replaced_through_a_link_and_a_link_in_it_is_not_followed(
    run: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    link, elsewhere = tmp_path / "link", tmp_path / "elsewhere"
    link.symlink_to(run)
    before = everything_in(run)
    with pytest.raises(
        RunDirectoryError, match=r"link is a symbolic link to .*seed-0, whose target is not replaced"
    ):
        create_run(link, NEW, {}, overwrite=True)
    shutil.move(run / "checkpoints", elsewhere)
    (run / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(RunDirectoryError, match="holds files that costate did not write: checkpoints"):
        create_run(run, NEW, {}, overwrite=True)
    (run / "checkpoints").unlink()
    shutil.move(elsewhere, run / "checkpoints")
    assert everything_in(run) == before
    (link.parent / "nowhere").symlink_to(tmp_path / "nothing")
    with pytest.raises(RunDirectoryError, match=r"nowhere is a symbolic link to .*, which does not exist"):
        check_free(tmp_path / "nowhere", overwrite=False)


def test_the_command_says_what_was_found(
    run: pathlib.Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (run / "thesis.tex").write_text("years of work")
    assert main(["train", "LQR", "--overwrite", "--out", str(run)]) == 1
    assert (
        "holds files that costate did not write: thesis.tex. Nothing was replaced" in capsys.readouterr().err
    )
    monkeypatch.chdir(run)
    assert main(["train", "LQR", "--overwrite", "--out", "."]) == 1
    assert "is the working directory. Nothing was replaced" in capsys.readouterr().err


# Replaces a run, and ends at rename, removal or flush number N.
REPLACER = """
import os, pathlib, sys
left = [int(sys.argv[2])]
def counted(real):
    def call(*arguments, **options):
        if left[0] == 0:
            os._exit(7)
        left[0] -= 1
        return real(*arguments, **options)
    return call
for name in ("fsync", "replace", "unlink", "rmdir", "mkdir"):
    setattr(os, name, counted(getattr(os, name)))
from costate.config.run_config import RunConfig
from costate.runs.run_directory import create_run
create_run(pathlib.Path(sys.argv[1]), RunConfig("LQR", seed=7), {}, overwrite=True)
"""


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forge]:
    with forge(tmp_path_factory.mktemp("victims")) as made:
        yield made


@pytest.mark.thorough
def test_whenever_a_replacement_is_killed_the_old_run_or_the_new_one_is_there(
    run: pathlib.Path, tmp_path: pathlib.Path, victims: Forge
) -> None:
    old = everything_in(run)
    was_old = was_new = False
    for moment in range(200):
        place = tmp_path / f"{moment}" / "seed-0"
        shutil.copytree(run, place)
        code = victims.run(REPLACER, [str(place), str(moment)]).returncode
        assert code in (0, 7)
        config = open_run(place).config
        if config == NEW:
            was_new = True
        else:
            was_old = True
            found = everything_in(place)
            assert {name: found[name] for name in old} == old
        # The next replacement works as if nothing had happened, and leaves no remains.
        create_run(place, NEW, {}, overwrite=True)
        assert open_run(place).config == NEW
        assert [path.name for path in place.parent.iterdir()] == ["seed-0"]
        if code == 0:
            break
    assert code == 0
    assert was_old
    assert was_new


def test_a_run_that_was_moved_aside_is_brought_back_and_one_that_was_replaced_is_cleared(
    run: pathlib.Path,
) -> None:
    config, aside = open_run(run).config, run.with_name(".seed-0.old")
    run.rename(aside)
    assert open_run(run).config == config
    shutil.copytree(run, aside)
    recover_run(run)
    assert not aside.exists()
    # A run that was being removed lost its config first. Without it, it is not restored.
    run.rename(aside)
    (aside / "config.json").unlink()
    with pytest.raises(RunDirectoryError, match="There is no run directory"):
        open_run(run)
    create_run(run, NEW, {}, overwrite=False)
    recover_run(run)
    assert [path.name for path in run.parent.iterdir()] == ["seed-0"]


def test_a_folder_of_somebody_else_that_has_the_name_of_one_moved_aside_stays(run: pathlib.Path) -> None:
    aside = run.with_name(".seed-0.old")
    aside.mkdir()
    (aside / "thesis.tex").write_text("years of work")
    recover_run(run)
    before = everything_in(run)
    with pytest.raises(RunDirectoryError, match=r"\.seed-0\.old is not a run directory"):
        create_run(run, NEW, {}, overwrite=True)
    assert everything_in(run) == before
    assert (aside / "thesis.tex").read_text() == "years of work"
    assert sorted(os.listdir(run.parent)) == [".seed-0.old", "seed-0"]


def test_a_checkpoint_into_which_somebody_put_something_is_not_removed(run: pathlib.Path) -> None:
    from costate.runs.checkpoint import _check_removable, folders, recover

    last = folders(run / "checkpoints")[-1]
    (last / "notes.txt").write_text("years of work")
    with pytest.raises(CostateError, match=r"holds files that costate did not write: notes\.txt"):
        _check_removable(last)
    # The same for a folder with the name of a checkpoint that was being replaced.
    last.rename(last.with_name(f".{last.name}.old"))
    recover(run / "checkpoints")
    assert (last / "notes.txt").read_text() == "years of work"


def test_the_marker_of_a_run_is_in_what_costate_writes(tmp_path: pathlib.Path) -> None:
    """Otherwise a run that is written today would be refused tomorrow."""
    written = create_run(tmp_path / "run", NEW, {}, overwrite=False).path / "config.json"
    assert json.loads(written.read_text()).keys() == {"format", "hash", "config"}
    check_free(tmp_path / "run", overwrite=True)
