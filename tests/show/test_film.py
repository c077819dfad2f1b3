"""Test films: length, dimming in blackouts, complete or no output, and the error without graphics."""

import dataclasses
import pathlib
import shutil

import av
import numpy as np
import pytest
from PIL import Image
from shown_runs import made_run

from costate import cli
from costate._base.errors import CheckpointError, ConfigError
from costate.config.run_config import RunConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig
from costate.runs.checkpoint import folders
from costate.runs.run_directory import Run, create_run
from costate.show import renderer
from costate.show.film import annotated, film, shortened, side_by_side, spread_out, tiles_of
from costate.show.player import Moment, Player
from costate.show.settings import EpisodeConfig, FilmConfig

SMALL = RunConfig(
    task="CartpoleSwingup", policy=PolicyConfig(hidden_size=8), rollout=RolloutConfig(environments=4)
)


def can_draw() -> bool:
    try:
        renderer.open_context(8, 8).free()
    except ConfigError:
        return False
    return True


draws = pytest.mark.skipif(
    not can_draw(), reason="neither EGL (libegl1 libgl1-mesa-dri) nor OSMesa (libosmesa6) is installed"
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return made_run(tmp_path_factory.mktemp("film") / "run", SMALL, steps=(0, 4000, 8000, 12000))


def moment(seen: float, time: float) -> Moment:
    return Moment(time, seen, np.zeros(1), 0.0, 7.0, 0.0, 0.0, np.zeros(1), np.zeros(1))


def test_a_tile_dims_in_the_dark_and_shows_when_it_was() -> None:
    picture = np.full((120, 160, 3), 200, np.uint8)
    sees = [moment(1.0, 0.01 * i) for i in range(100)]
    blind = [moment(1.0, 0.01 * i) for i in range(50)] + [moment(0.0, 0.01 * i) for i in range(50, 100)]
    bright, dim = annotated(picture, "a", sees), annotated(picture, "a", blind)
    # In the middle, which has no text: after a long blackout a little more than a third of the brightness is
    # left.
    assert (bright[60:100, 20:140] == 200).all()
    assert (dim[60:100, 20:140] == 70).all()
    # The strip: observations arrived in the first half and not in the second.
    strip = dim[-5, :, 0].astype(int)
    assert (strip[10:70] == 240).all()
    assert (strip[90:150] == 40).all()
    # The frame is white or black.
    assert (bright[60, 0] == 255).all()
    assert (dim[60, 0] == 0).all()


def test_the_picture_does_not_flash_with_every_step() -> None:
    """Between two steps the brightness changes by one step's share of the averaging window."""
    picture = np.full((120, 160, 3), 200, np.uint8)
    history = [moment(float(i % 2), 0.01 * i) for i in range(100)]
    lights = [float(annotated(picture, "", history[:length])[80, 80, 0]) for length in range(60, 100)]
    assert max(lights) - min(lights) < 10.0


def test_tiles_stand_in_a_grid() -> None:
    tiles = [np.full((2, 3, 3), value, np.uint8) for value in (1, 2, 3)]
    grid = side_by_side(tiles)
    assert grid[:, :, 0].tolist() == [[1, 1, 1, 2, 2, 2]] * 2 + [[3, 3, 3, 0, 0, 0]] * 2


def test_policies_are_spread_over_training() -> None:
    assert spread_out(range(0, 110, 10), 6) == (0, 20, 40, 60, 80, 100)
    assert spread_out((5,), 6) == (5,)
    assert spread_out((1, 2, 3), 6) == (1, 2, 3)


def test_a_title_that_is_too_long_for_a_picture_loses_its_middle() -> None:
    assert shortened("nc-gru, seed 0", 14, len) == "nc-gru, seed 0"
    assert shortened("nc-gru+environments=4, seed 0", 15, len) == "nc-gru+… seed 0"
    assert len(shortened("nc-gru", 0, len)) == 3


def test_policies_that_lie_close_together_do_not_crowd_out_the_others() -> None:
    # Two near the start and many at the end: those closest to 0, 20, 40, 60, 80 and 100 come first, then 94
    # and 98, which are furthest from them.
    assert spread_out((0, 10, 90, 91, 94, 98, 99, 100), 6) == (0, 10, 90, 94, 98, 100)
    assert spread_out((0, 90, 95, 100), 6) == (0, 90, 95, 100)
    assert spread_out((0, 0), 6) == (0,)


def test_a_grid_of_a_run_that_was_interrupted_has_its_checkpoints_too(tmp_path: pathlib.Path) -> None:
    """In the first tenth of a run, the untrained policy is its only milestone."""
    run = made_run(tmp_path / "run", SMALL, (0, 4000, 8000))
    for folder in folders(run.milestones)[1:]:
        shutil.rmtree(folder)
    assert [tile.step for tile in tiles_of([run], (), grid=True)] == [0, 4000, 8000]


@draws
def test_a_film_goes_into_a_folder_that_is_given_and_never_replaces_one(
    run: Run, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """This also holds for a folder whose name ends like that of a film."""
    folder = tmp_path / "mine.mp4"
    folder.mkdir()
    (folder / "thesis.tex").write_text("years of work")
    arguments = [
        "video",
        str(run.path),
        "--out",
        str(folder),
        "--seconds",
        "0.2",
        "--width",
        "64",
        "--height",
        "64",
    ]
    assert cli.main(arguments) == 0
    name = f"{SMALL.task}_step_{12000:012d}.mp4"
    assert sorted(path.name for path in folder.iterdir()) == [name, "thesis.tex"]
    assert f"film in {folder / name}" in capsys.readouterr().out
    (folder / name).unlink()
    (folder / name).mkdir()
    assert cli.main(arguments) == 1
    assert f"Nothing was written to {folder / name}: it is a folder" in capsys.readouterr().err


def test_which_policies_are_filmed(run: Run, tmp_path: pathlib.Path) -> None:
    assert [tile.step for tile in tiles_of([run], (), grid=False)] == [12000]
    assert [tile.step for tile in tiles_of([run], (), grid=True)] == [0, 4000, 8000, 12000]
    assert [tile.step for tile in tiles_of([run], (4000, 0), grid=False)] == [4000, 0]
    assert [tile.title for tile in tiles_of([run, run], (), grid=True)] == [
        "nc-gru+environments=4+hidden-size=8, seed 0"
    ] * 2
    with pytest.raises(CheckpointError, match=r"no policy after 5 steps\. Available: 0, 4000"):
        tiles_of([run], (5,), grid=False)
    with pytest.raises(ConfigError, match="several policies of one run"):
        tiles_of([run, run], (0,), grid=False)
    empty = create_run(tmp_path / "empty", SMALL, {}, overwrite=False)
    with pytest.raises(CheckpointError, match="no checkpoint yet"):
        tiles_of([empty], (), grid=False)


@draws
def test_a_film_has_its_length_and_shows_the_robot(
    run: Run, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "film.mp4"
    code = cli.main(
        [
            "video",
            str(run.path),
            "--out",
            str(out),
            "--seconds",
            "0.8",
            "--fps",
            "20",
            "--width",
            "160",
            "--height",
            "120",
            "--dropout",
            "0",
        ]
    )
    assert code == 0
    said = capsys.readouterr().out
    assert "nc-gru+environments=4+hidden-size=8 after 12,000 steps: return " in said
    assert f"film in {out}" in said
    with av.open(str(out)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert container.streams.video[0].average_rate == 20
    assert len(frames) == 16
    assert frames[0].shape == (120, 160, 3)
    # The image is not uniform, and it changes.
    assert np.std(frames[0][40:100]) > 5.0
    assert np.abs(frames[0].astype(int) - frames[-1]).max() > 30


@draws
def test_a_grid_compares_policies_in_a_gif(run: Run, tmp_path: pathlib.Path) -> None:
    out = tmp_path / "deep" / "grid.gif"
    told: list[tuple[float | None, str]] = []
    tiles = tiles_of([run], (0, 12000), grid=True)
    config = FilmConfig(seconds=0.3, fps=10, width=96, height=64, episode=EpisodeConfig(dropout=1.0))
    returns = film(tiles, config, out, pytest.fail, lambda *now: told.append(now))
    picture = Image.open(out)
    assert picture.size == (192, 64)
    assert picture.n_frames == 3
    assert told == [
        (None, "loading"),
        (1 / 3, "frame 1 of 3"),
        (2 / 3, "frame 2 of 3"),
        (1.0, "frame 3 of 3"),
    ]
    assert len(returns) == 2


@draws
def test_robots_do_not_haunt_each_others_tiles(run: Run, tmp_path: pathlib.Path) -> None:
    """Two tiles of the same policy have the same image."""
    out = tmp_path / "twice.gif"
    film(
        tiles_of([run], (0, 0), grid=True),
        FilmConfig(seconds=0.3, fps=10, width=96, height=64),
        out,
        pytest.fail,
    )
    picture = Image.open(out)
    picture.seek(2)
    pixels = np.asarray(picture.convert("RGB")).astype(int)
    assert np.abs(pixels[:, :96] - pixels[:, 96:]).max() <= 8


@draws
def test_a_film_that_fails_leaves_nothing(
    run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "film.gif"

    def fail(share: float | None, what: str) -> None:
        if share is not None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        film(
            tiles_of([run], (), grid=False),
            FilmConfig(seconds=0.2, width=64, height=64),
            out,
            pytest.fail,
            fail,
        )
    assert list(tmp_path.iterdir()) == []


def test_where_nothing_can_draw_the_packages_are_named(
    run: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        renderer, "BACKENDS", {f"nowhere.{name}": packages for name, packages in renderer.BACKENDS.items()}
    )
    assert cli.main(["video", str(run.path)]) == 1
    said = capsys.readouterr().err
    assert "No graphics backend works: neither EGL nor OSMesa" in said
    assert "apt-get install libegl1 libgl1-mesa-dri or apt-get install libosmesa6" in said
    assert not (run.path / "videos").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seconds": 0.0}, "seconds is 0"),
        ({"width": 65}, "width is 65"),
        ({"height": 10}, "height is 10"),
        ({"fps": 0}, "fps is 0"),
    ],
)
def test_impossible_films_are_refused(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        dataclasses.replace(FilmConfig(), **changes)


def test_a_film_of_an_unknown_kind_is_refused(run: Run, tmp_path: pathlib.Path) -> None:
    with pytest.raises(ConfigError, match=r"ends in \.avi, but a film is one of \.mp4, \.gif"):
        film(tiles_of([run], (), grid=False), FilmConfig(), tmp_path / "film.avi", pytest.fail)


@draws
def test_a_film_of_an_episode_that_ends_early_keeps_its_last_picture(
    run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    advance, steps = Player.advance, iter(range(10_000))
    monkeypatch.setattr(Player, "advance", lambda self, dark: (advance(self, dark)[0], next(steps) == 20))
    out = tmp_path / "short.gif"
    (total,) = film(
        tiles_of([run], (), grid=False),
        FilmConfig(seconds=0.6, fps=10, width=96, height=64, episode=EpisodeConfig(dropout=0.0)),
        out,
        pytest.fail,
    )
    assert next(steps) == 21
    assert total > 0.0
    # 21 steps of 0.01 s: nothing moves from the fourth image on.
    frames = []
    with Image.open(out) as picture:
        for number in range(picture.n_frames):
            picture.seek(number)
            frames.append(np.asarray(picture.convert("RGB")).copy())
    assert len(frames) == 6
    # The strip of observations and the numbers change, and the camera still rises a little.
    np.testing.assert_array_equal(frames[3][-8:], frames[5][-8:])
    moved, held = (np.abs(frames[a].astype(int) - frames[b]).mean() for a, b in ((0, 3), (3, 5)))
    assert held < 0.5 * moved
