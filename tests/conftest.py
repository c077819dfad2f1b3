"""Settings shared by all tests."""

import dataclasses
import gc
import os
import pathlib
from collections.abc import Iterator

# Importing dm_control must not look for a screen.
os.environ.setdefault("MUJOCO_GL", "disable")
# Many tests compile the same update; the environment hands the cache on to the programs that tests start.
_CACHE = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
# Small programs too: there are hundreds, and each takes a twentieth of a second to compile.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Nearly all programs of the tests run for moments, and optimising their machine code takes longer than that. The arithmetic is the same up to
# rounding; with JAX_DISABLE_MOST_OPTIMIZATIONS=0 in the environment all is compiled as it is for users.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] != "0":
    # XLA's older way to turn fused operations into machine code takes two fifths of the time of the newer one.
    os.environ["XLA_FLAGS"] = (
        f"--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 {os.environ.get('XLA_FLAGS', '')}".strip()
    )

import coverage
import hypothesis
import jax
import pytest

from costate.config.run_config import RunConfig
from costate.learners.ppo.config import PPOConfig
from costate.learners.rollout import RolloutConfig
from costate.policies.policy import PolicyConfig

# As the library does on a machine of two cores, before anything else starts JAX.
jax.config.update("jax_num_cpu_devices", 2)
# Whether to compile quickly; see above.
_QUICKLY = bool(jax.config.read("jax_disable_most_optimizations"))
# Silent broadcasting of arrays of different rank hides shape errors.
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tests of what stands on the layers whose coverage is asked for in pyproject.toml; those layers have tests of their own.
UNWATCHED = {
    f"test_{name}.py"
    for name in (
        "cli", "cli_polish", "completion", "faults", "signals", "run_lock", "sweep", "report", "show", "film", "view_browser", "exporting", "deploy",
        "tasks_against_dm_control", "task_contract", "wandb", "examples", "startup", "audit", "verification", "own_robot", "gymnasium", "ray",
        "spec", "robustness", "statistics", "checkpoint", "alignment", "pages", "absent_sensors",
    )
}  # fmt: skip
# The same examples everywhere and every time; those that are compiled for the first time may take as long as they like.
hypothesis.settings.register_profile(
    "costate", derandomize=True, deadline=None, database=None, max_examples=30
)
hypothesis.settings.load_profile("costate")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test with the mark ``quick``, the cases that it does not name are thorough. A name that no case has is an error, so that none is lost."""
    named: dict[str, set[str]] = {}
    found: dict[str, set[str]] = {}
    for item in items:
        mark = item.get_closest_marker("quick")
        if mark is None or not isinstance(item, pytest.Function):
            continue
        test, case = item.nodeid.partition("[")[0], item.callspec.id
        named.setdefault(test, set(mark.args))
        found.setdefault(test, set()).add(case)
        if case not in mark.args:
            item.add_marker(pytest.mark.thorough)
    for test, names in named.items():
        # Where single cases were asked for, the others are not here.
        if len(found[test]) > 1 and not names <= found[test]:
            raise pytest.UsageError(
                f"{test} has no cases {sorted(names - found[test])}, but its mark `quick` names them. It has {sorted(found[test])}."
            )


@pytest.hookimpl
def pytest_collection_finish() -> None:
    """What is imported stays: the garbage collector need not look through it again and again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Which lines run is recorded, at a fifth of the time, only for tests of the layers whose coverage is asked for."""
    watching = coverage.Coverage.current() if item.path.name in UNWATCHED else None
    if watching is None:
        return (yield)
    watching.stop()
    try:
        return (yield)
    finally:
        watching.start()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests that train for minutes have the machine code that users have; before any fixture of theirs compiles."""
    quickly = _QUICKLY and item.get_closest_marker("slow") is None
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quickly))
    jax.config.update("jax_disable_most_optimizations", quickly)


@pytest.fixture(scope="module", autouse=True)
def forget_programs() -> Iterator[None]:
    """Programs of one file are of no use to the next, and gigabytes of them slow everything down."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="session")
def small_config() -> RunConfig:
    """A run of three iterations that takes seconds."""
    return RunConfig(
        task="CartpoleSwingup",
        steps=3 * 4 * 1000,
        checkpoint_every=1,
        policy=PolicyConfig(hidden_size=16),
        rollout=RolloutConfig(environments=4),
        learner=PPOConfig(epochs=2, minibatches=2),
    )


@pytest.fixture(scope="session")
def quick_config(small_config: RunConfig) -> RunConfig:
    """The same in a world in JAX, for tests of anything but the simulator: its programs can be kept, and it needs half of the time."""
    return dataclasses.replace(small_config, task="LQR")
