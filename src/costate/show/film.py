"""Films of policies, made without a display.

Every robot has a tile with its observations and rewards, and all robots have the same blackouts.
"""

import dataclasses
import io
import math
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFont, ImageOps

from costate._base.errors import CheckpointError, ConfigError
from costate._base.files import check_replaceable, output_folder, replace_file
from costate._base.progress import Tell, nobody
from costate._base.types import UInt8
from costate.envs.visible import AbstractPicturedRobot, AbstractRobot, AbstractVisibleRobot
from costate.runs.evaluation_log import best_step
from costate.runs.run_directory import Run
from costate.show.performance import Performance
from costate.show.player import Moment, Player
from costate.show.renderer import Renderer
from costate.show.settings import FilmConfig
from costate.trained.trained import shown_steps
from costate.training.startup import prepare_jax

FORMATS = (".mp4", ".gif")
# Number of policies of one run in a grid, from the start of training to its end.
GRID_STEPS = 6
# Brightness of an image after this many seconds of blackout.
DIM = 0.35
MOMENTS = 0.4
# In pixels.
STRIP = 10
BORDER = 4
# A GIF may have 256 colours, but is half as large with these.
COLORS = 128


@dataclasses.dataclass(frozen=True)
class Tile:
    """One policy in the film."""

    run: Run
    step: int
    """Environment steps of training at which the policy was saved."""
    title: str


def tiles_of(runs: Sequence[Run], points: Sequence[int | Literal["best"]], grid: bool) -> list[Tile]:
    """Return the policies to film: the newest of every run, or several of one run."""
    for run in runs:
        if not shown_steps(run):
            raise CheckpointError(
                f"{run.path} has no checkpoint yet, so there is no policy to film. Train it, or wait for its "
                f"first checkpoint."
            )
    if points and len(runs) > 1:
        raise ConfigError(
            f"Steps were given for {len(runs)} runs, but a film compares either several policies of one run "
            f"or several runs. Give one run, or no steps."
        )
    if len(runs) > 1:
        return [Tile(run, shown_steps(run)[-1], f"{run.variant}, seed {run.config.seed}") for run in runs]
    run = runs[0]
    available = shown_steps(run)
    steps = [best_step(run) if point == "best" else point for point in points]
    missing = [step for step in steps if step not in available]
    if missing:
        raise CheckpointError(
            f"{run.path} has no policy after {missing[0]} steps. Available: {', '.join(map(str, available))}."
        )
    chosen = tuple(steps) or (spread_out(available, GRID_STEPS) if grid else available[-1:])
    return [Tile(run, step, f"{run.variant} after {step:,} steps") for step in chosen]


def spread_out(steps: Sequence[int], count: int) -> tuple[int, ...]:
    """Return at most ``count`` of the steps in order, spread evenly over training, including both ends.

    Milestones lie far apart and the last few checkpoints close together. The spread is therefore over steps,
    not over positions in the list.
    """
    wanted = np.linspace(steps[0], steps[-1], count)
    chosen = {min(steps, key=lambda step: abs(step - at)) for at in wanted}
    # If several targets chose the same step, add the steps that are furthest from the chosen ones.
    while len(chosen) < min(count, len(set(steps))):
        chosen.add(max(steps, key=lambda step: min(abs(step - other) for other in chosen)))
    return tuple(sorted(chosen))


def film(
    tiles: Sequence[Tile],
    config: FilmConfig,
    out: pathlib.Path,
    warn: Callable[[str], None],
    tell: Tell = nobody,
) -> list[float]:
    """Write the film to ``out``, completely or not at all, and return the returns at its end."""
    write = writer_for(out)
    check_replaceable(out)
    prepare_jax()
    # Created first, so that a missing graphics library is reported at once.
    renderer = Renderer(config.width, config.height) if _is_drawn(tiles[0].run) else None
    try:
        tell(None, "loading")
        players = [Player(tile.run, tile.step, warn, tile.title) for tile in tiles]
        performance = Performance(
            players, config.episode.blackouts(tiles[0].run.config.sensors), config.episode.seed
        )
        try:
            frames = _frames(performance, renderer, config, tell)
            output_folder(out.parent)
            replace_file(out, lambda temporary: write(temporary, frames, config.fps))
            return [history[-1].total for history in performance.histories]
        finally:
            performance.close()
    finally:
        if renderer is not None:
            renderer.close()


def _is_drawn(run: Run) -> bool:
    """Return whether this library draws the robots of a run's task, instead of the environment itself."""
    robot = run.config.task_record.visible()
    robot.close()
    return isinstance(robot, AbstractVisibleRobot)


def picture_of(
    robot: AbstractRobot, renderer: Renderer | None, config: FilmConfig
) -> UInt8[np.ndarray, "H W 3"]:
    """Return an image of a robot in its present state, in the size of a tile."""
    if isinstance(robot, AbstractPicturedRobot):
        return fitted(robot.picture(), config.width, config.height)
    assert isinstance(robot, AbstractVisibleRobot)
    assert renderer is not None
    return renderer.draw(robot.model, robot.data)


def fitted(picture: UInt8[np.ndarray, "G V 3"], width: int, height: int) -> UInt8[np.ndarray, "H W 3"]:
    """Scale an image to fit into the given size, centred on black."""
    return np.asarray(ImageOps.pad(Image.fromarray(picture), (width, height)))


def _frames(
    performance: Performance, renderer: Renderer | None, config: FilmConfig, tell: Tell
) -> Iterator[UInt8[np.ndarray, "H W 3"]]:
    """Yield images at the film's frame rate, each after the control steps that are due by then."""
    count = max(1, round(config.seconds * config.fps))
    over = False
    for number in range(count):
        # If the episode ends before the film does, its last image stays.
        while not over and performance.step <= number / config.fps / performance.timestep + 1e-9:
            over = performance.advance_within()
        tiles = [
            annotated(picture_of(player.robot, renderer, config), player.title, list(history))
            for player, history in zip(performance.players, performance.histories, strict=True)
        ]
        tell((number + 1) / count, f"frame {number + 1} of {count}")
        yield side_by_side(tiles)


def annotated(
    picture: UInt8[np.ndarray, "H W 3"], title: str, history: Sequence[Moment]
) -> UInt8[np.ndarray, "H W 3"]:
    """Add the return so far, a frame that is black during a blackout, and a strip of past observations.

    The strip is light where sensors worked. The image dims smoothly, not with every step, because images that
    flash many times a second can harm viewers.
    """
    now = history[-1]
    recent = [moment.seen for moment in history if moment.time > now.time - MOMENTS]
    image = Image.fromarray((picture * (DIM + (1.0 - DIM) * float(np.mean(recent)))).astype(np.uint8))
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=max(10, image.height // 24))
    sight = "" if now.seen > 0.0 else "   sensors dark"
    for row, text in enumerate(
        (
            shortened(title, image.width - 24, font.getlength),
            f"{now.time:.1f} s   return {now.total:.1f}{sight}",
        )
    ):
        draw.text(
            (12, 8 + row * image.height // 18),
            text,
            font=font,
            fill=(255, 255, 255),
            stroke_width=2,
            stroke_fill=(0, 0, 0),
        )
    tone = round(255 * now.seen)
    draw.rectangle((0, 0, image.width - 1, image.height - 1), outline=(tone, tone, tone), width=BORDER)
    seen = np.array([moment.seen for moment in history])
    places = np.linspace(0, len(seen) - 1, image.width).round().astype(int)
    result = np.array(image)
    result[-STRIP:] = (40 + 200 * seen[places]).astype(np.uint8)[None, :, None]
    return result


def shortened(text: str, width: int, length: Callable[[str], float]) -> str:
    """Shorten a text to a width by cutting its middle, because titles differ at their beginning and end."""
    cut, kept = text, len(text)
    while length(cut) > width and kept > 2:
        kept -= 1
        cut = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
    return cut


def side_by_side(tiles: Sequence[UInt8[np.ndarray, "H W 3"]]) -> UInt8[np.ndarray, "G V 3"]:
    """Arrange images of one size in a grid that is about as wide as high, with black in unused cells."""
    columns = math.ceil(math.sqrt(len(tiles)))
    rows = math.ceil(len(tiles) / columns)
    height, width, _ = tiles[0].shape
    grid = np.zeros((rows * height, columns * width, 3), np.uint8)
    for i, tile in enumerate(tiles):
        top, left = i // columns * height, i % columns * width
        grid[top : top + height, left : left + width] = tile
    return grid


Writer = Callable[[pathlib.Path, Iterator[UInt8[np.ndarray, "H W 3"]], int], None]


def writer_for(out: pathlib.Path) -> Writer:
    """Return the function that writes a film of this file type."""
    if out.suffix.lower() == ".gif":
        return write_gif
    if out.suffix.lower() == ".mp4":
        try:
            import av  # noqa: F401
        except ImportError as error:
            raise ConfigError(
                "An MP4 film needs PyAV, which is not installed. Install it with pip install "
                "'costate[view]', or name a .gif file."
            ) from error
        return write_mp4
    raise ConfigError(f"{out} ends in {out.suffix or 'nothing'}, but a film is one of {', '.join(FORMATS)}.")


def write_gif(path: pathlib.Path, frames: Iterator[UInt8[np.ndarray, "H W 3"]], rate: int) -> None:
    pictures = [Image.fromarray(frame).quantize(COLORS, dither=Image.Dither.NONE) for frame in frames]
    content = io.BytesIO()
    pictures[0].save(
        content,
        format="GIF",
        save_all=True,
        append_images=pictures[1:],
        duration=round(1000 / rate),
        loop=0,
        optimize=True,
    )
    path.write_bytes(content.getvalue())


def write_mp4(path: pathlib.Path, frames: Iterator[UInt8[np.ndarray, "H W 3"]], rate: int) -> None:
    import av

    with av.open(str(path), "w", format="mp4") as container:
        stream = None
        for frame in frames:
            if stream is None:
                stream = container.add_stream(
                    "libx264", rate=rate, options={"crf": "23", "preset": "veryfast"}
                )
                stream.height, stream.width = frame.shape[:2]
                stream.pix_fmt = "yuv420p"
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(frame), format="rgb24"))
            )
        if stream is not None:
            container.mux(stream.encode())
