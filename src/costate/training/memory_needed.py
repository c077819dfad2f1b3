"""Compare the memory that training needs with the free memory before allocating it.

Only what is certain is counted, so that nothing is refused that would fit. If memory still runs out,
`out_of_memory` explains it.
"""

import jax

from costate._base.errors import ConfigError
from costate._base.out_of_memory import REMEDY
from costate.config.run_config import RunConfig
from costate.learners import learner_for
from costate.learners.sharding import DeviceGrid
from costate.runs.machine import available_memory
from costate.training.programs import state_template


def check_memory(config: RunConfig, grid: DeviceGrid, seeds: int) -> None:
    """Raise if the state of the learner between iterations will not fit into memory."""
    learner, available = learner_for(config), available_memory()
    copies = seeds * grid.streams
    # Each device that shares a seed holds its whole replay: the one of the start, those before and after an
    # update, and one to be saved.
    replay = 4 * copies * learner.replay_bytes
    if replay > available:
        raise ConfigError(
            f"A replay of {learner.replay_steps:,} steps takes {replay / 1e9:,.1f} GB in all (up to four "
            f"copies on each of {grid.streams} devices{f', {seeds} seeds' if seeds > 1 else ''}), but "
            f"{available / 1e9:,.1f} GB are free. Use a smaller --replay.capacity, --replay.storage float16, "
            f"{'fewer --seeds, ' if seeds > 1 else ''}or --devices 1."
        )
    # The weights and the optimiser's state, before and after an update.
    networks = 2 * copies * (state_bytes(config) - learner.replay_bytes)
    if networks > available and _on_host():
        raise ConfigError(
            f"The networks with their optimiser take at least {networks / 1e9:,.1f} GB (hidden size "
            f"{config.policy.hidden_size:,}; {2 * copies} copies on {grid.devices} of {len(jax.devices())} "
            f"devices), but {available / 1e9:,.1f} GB are free. {REMEDY}"
        )


def state_bytes(config: RunConfig) -> int:
    """Return the bytes of one seed's training state, including its stored experience."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state_template(config)))


def check_iteration(needed: int, grid: DeviceGrid) -> None:
    """Raise if a compiled iteration, which has not run yet, needs more memory than is free."""
    available = available_memory()
    if needed > available and _on_host():
        raise ConfigError(
            f"An iteration takes {needed / 1e9:,.1f} GB on {grid.devices} of {len(jax.devices())} devices, "
            f"but {available / 1e9:,.1f} GB are free. {REMEDY}"
        )


def _on_host() -> bool:
    """Return whether devices use the machine's memory, the only memory that is measured."""
    return str(jax.devices()[0].platform) == "cpu"
