"""Settings shared by all tests."""

import dataclasses
import gc
import os
import pathlib
from collections.abc import Iterator

# Importing dm_control must not look for a display.
os.environ.setdefault("MUJOCO_GL", "disable")
# Many tests compile the same update. The environment passes the cache on to programs that tests start.
_CACHE = pathlib.Path(__file__).parents[1] / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
# Small programs too: there are hundreds, and each takes a twentieth of a second to compile.
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
# Nearly all programs of the tests run for moments, and optimising their machine code takes longer than that.
# Results are the same up to rounding. With JAX_DISABLE_MOST_OPTIMIZATIONS=0 in the environment everything is
# compiled as for users.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
if os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] != "0":
    # XLA's older compiler of fused operations takes two fifths of the time of the newer one.
    os.environ["XLA_FLAGS"] = (
        "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1 "
        f"{os.environ.get('XLA_FLAGS', '')}".strip()
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
# True if optimisation is disabled, as above.
_QUICKLY = bool(jax.config.read("jax_disable_most_optimizations"))
# Silent broadcasting of arrays of different rank hides shape errors.
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tests of code above the layers whose coverage is measured (pyproject.toml). Those layers have their own
# tests.
UNWATCHED = {
    f"test_{name}.py"
    for name in (
        "cli",
        "cli_polish",
        "completion",
        "faults",
        "signals",
        "run_lock",
        "sweep",
        "report",
        "show",
        "film",
        "view_browser",
        "exporting",
        "deploy",
        "tasks_against_dm_control",
        "task_contract",
        "wandb",
        "examples",
        "startup",
        "audit",
        "verification",
        "own_robot",
        "gymnasium",
        "ray",
        "spec",
        "robustness",
        "statistics",
        "checkpoint",
        "alignment",
        "pages",
        "absent_sensors",
    )
}
# The same examples on every machine and every time, without a deadline, because the first one compiles.
hypothesis.settings.register_profile(
    "costate", derandomize=True, deadline=None, database=None, max_examples=30
)
hypothesis.settings.load_profile("costate")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as thorough all cases that a test's mark ``quick`` does not name.

    A name without a case is an error, so that no case is lost.
    """
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
        # If single cases were requested, the others are not collected.
        if len(found[test]) > 1 and not names <= found[test]:
            raise pytest.UsageError(
                f"{test} has no cases {sorted(names - found[test])}, but its mark `quick` names them. "
                f"It has {sorted(found[test])}."
            )


@pytest.hookimpl
def pytest_collection_finish() -> None:
    """Exclude imported objects from garbage collection, because they stay anyway."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Record coverage only for tests of the measured layers, because it costs a fifth of the time."""
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
    """Compile as for users in tests that train for minutes, before any of their fixtures compiles."""
    quickly = _QUICKLY and item.get_closest_marker("slow") is None
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = str(int(quickly))
    jax.config.update("jax_disable_most_optimizations", quickly)


@pytest.fixture(scope="module", autouse=True)
def forget_programs() -> Iterator[None]:
    """Clear compiled programs after each file. The next cannot use them, and gigabytes of them cost time."""
    yield
    jax.clear_caches()
    gc.collect()


@pytest.fixture(scope="session")
def small_config() -> RunConfig:
    """Return the config of a run of three iterations that takes seconds."""
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
    """Return the same in a JAX world, for tests of anything but the simulator.

    Its programs can be cached, and it takes half of the time.
    """
    return dataclasses.replace(small_config, task="LQR")
