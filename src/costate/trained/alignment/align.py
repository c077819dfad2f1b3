"""Compare a trained policy with the true co-states of its own trajectories, and write the result."""

import json
import pathlib
from collections.abc import Callable

from costate._base.errors import ConfigError
from costate._base.files import output_folder, write_atomically
from costate._base.progress import Tell, nobody, within
from costate.envs.sensors import only_blackouts
from costate.learners import learner_for
from costate.runs.run_directory import Run
from costate.trained.alignment.comparison import compare
from costate.trained.alignment.figures import draw
from costate.trained.alignment.knockout import returns_without_memory
from costate.trained.alignment.moments import moments_of
from costate.trained.alignment.result import FOLDER, RESULT, Alignment, AlignmentSettings, to_json
from costate.trained.recording import record_episode
from costate.trained.trained import load_state
from costate.trained.true_costates import discount_of, true_costates
from costate.training.startup import prepare_jax

# Added to the seed, so that none of these episodes was played in training or evaluation.
SEED_OFFSET = 2_000_003
# Approximate share of the time that has passed when all is recorded, and when it is compared.
RECORDED, COMPARED = 0.7, 0.85
# An episode with fewer trusted moments is left out.
FEWEST_MOMENTS = 2


def align(
    run: Run,
    settings: AlignmentSettings,
    warn: Callable[[str], None],
    say: Callable[[str], None],
    tell: Tell = nobody,
) -> Alignment:
    """Record episodes, differentiate them, compare, and play with the memory erased."""
    prepare_jax()
    learner = learner_for(run.config)
    sensors = only_blackouts(run.config.sensors, settings.dropout)
    checkpoint, state = load_state(run, None, warn)
    controller, discount = learner.controller(state), discount_of(run)
    moments = []
    for number in range(settings.episodes):
        tell(
            RECORDED * number / settings.episodes,
            f"recording and differentiating episode {number + 1} of {settings.episodes}",
        )
        seed = settings.seed + SEED_OFFSET + number
        episode = record_episode(
            run.config.task,
            controller,
            seed=seed,
            dropout=sensors.dropout,
            steps=settings.steps + settings.horizon,
        )
        if len(episode.rewards) <= settings.steps:
            say(f"episode {number + 1}: ended by itself after {len(episode.rewards)} steps, left out")
            continue
        costates = true_costates(episode, discount, horizon=settings.horizon)
        found = moments_of(learner, state, episode, costates, discount, settings.steps)
        if costates.doubt is not None:
            warn(
                f"episode {number + 1}: {costates.doubt} "
                f"{found.untrusted} of {settings.steps} moments are left out."
            )
        if len(found.times) < FEWEST_MOMENTS:
            say(f"episode {number + 1}: only {len(found.times)} moments have trusted co-states, left out")
            continue
        moments.append(found)
        say(
            f"episode {number + 1} of {settings.episodes}: return {episode.rewards.sum():.1f} "
            f"in {len(episode.rewards)} steps"
        )
    if len(moments) < 2:
        raise ConfigError(
            f"Only {len(moments)} of {settings.episodes} episodes are longer than the {settings.steps} "
            "compared steps and have trusted co-states, but at least 2 are needed: one to fit to, one to "
            "test on. Compare fewer steps with --steps, record more episodes with --episodes, or shorten "
            "the future of a co-state with --horizon, so that it contains fewer kinks."
        )
    tell(RECORDED, "comparing")
    comparison = compare(moments, settings.seed)
    knockout = None
    if settings.knockout_episodes:
        say("playing with the memory erased")
        knockout = returns_without_memory(
            run.config.task,
            controller,
            sensors,
            settings.knockout_episodes,
            settings.seed,
            within(tell, COMPARED, 1.0),
        )
    return Alignment(settings, sensors.dropout, checkpoint.env_steps, comparison, knockout, moments)


def write_alignment(run: Run, found: Alignment) -> list[pathlib.Path]:
    """Write JSON and figures to the run's folder; return the files."""
    folder = output_folder(run.path / FOLDER)
    files = {RESULT: json.dumps(to_json(run, found), indent=1).encode(), **draw(run.config.task, found)}
    for name, content in files.items():
        write_atomically(folder / name, content)
    return [folder / name for name in files]
