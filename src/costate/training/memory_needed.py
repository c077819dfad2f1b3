"""Memory that training takes, compared with what is free before any of it is taken.

Only what is certain is counted, so that nothing is refused that would fit. What still runs out ends with a reason: see `out_of_memory`.
"""

import jax

from costate._base.errors import ConfigError
from costate._base.out_of_memory import REMEDY
from costate.config.run_config import RunConfig
from costate.learners import learner_for
from costate.learners.sharding import Layout
from costate.runs.machine import available_memory
from costate.training.programs import state_template


def check_memory(config: RunConfig, layout: Layout, seeds: int) -> None:
    """Raise if what a learner keeps between iterations will not fit into memory."""
    learner, available = learner_for(config), available_memory()
    copies = seeds * layout.streams
    # Each device that shares a seed has all of its replay: that of the start, those before and after an update, and one to be saved.
    replay = 4 * copies * learner.replay_bytes
    if replay > available:
        raise ConfigError(
            f"A replay of {learner.replay_steps:,} steps takes {replay / 1e9:,.1f} GB (up to four copies on each of {layout.streams} devices"
            f"{f', {seeds} seeds' if seeds > 1 else ''}), but {available / 1e9:,.1f} GB are free. Use a smaller --replay.capacity, "
            "--replay.storage float16, or --devices 1."
        )
    # The weights and what the optimiser keeps of them, before and after an update.
    networks = 2 * copies * (state_bytes(config) - learner.replay_bytes)
    if networks > available and _on_host():
        raise ConfigError(
            f"The networks with their optimiser take at least {networks / 1e9:,.1f} GB (hidden size "
            f"{config.policy.hidden_size:,}; {2 * copies} copies on {layout.devices} of {len(jax.devices())} devices), "
            f"but {available / 1e9:,.1f} GB are free. {REMEDY}"
        )


def state_bytes(config: RunConfig) -> int:
    """Memory of all that training changes of one seed, its stored experience included."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(state_template(config)))


def check_iteration(needed: int, layout: Layout) -> None:
    """Raise if an iteration, which is compiled and has not run yet, takes more memory than there is."""
    available = available_memory()
    if needed > available and _on_host():
        raise ConfigError(
            f"An iteration takes {needed / 1e9:,.1f} GB on {layout.devices} of {len(jax.devices())} devices, "
            f"but {available / 1e9:,.1f} GB are free. {REMEDY}"
        )


def _on_host() -> bool:
    """Whether devices have the memory of the machine, which is all that is known of."""
    return str(jax.devices()[0].platform) == "cpu"
