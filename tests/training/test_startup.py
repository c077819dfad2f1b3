"""Settings of JAX at startup: one device per core and a cache, but never against the user's own choice."""

import ast
import os
import subprocess
import sys

import pytest

SHOW = (
    "import jax; from costate.training.startup import prepare_jax; prepare_jax(); "
    "print(len(jax.devices()), jax.config.jax_compilation_cache_dir)"
)


def fresh_process(code: str, **variables: str) -> str:
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_"))
    } | variables
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True, timeout=120
    ).stdout.strip()


def test_every_core_is_a_device_and_programs_are_kept_in_the_users_cache(tmp_path):
    assert (
        fresh_process(SHOW, XDG_CACHE_HOME=str(tmp_path))
        == f"{len(os.sched_getaffinity(0))} {tmp_path}/costate/compiled"
    )


def test_the_users_choices_are_kept(tmp_path):
    chosen = fresh_process(SHOW, JAX_NUM_CPU_DEVICES="3", JAX_COMPILATION_CACHE_DIR=str(tmp_path))
    assert chosen == f"3 {tmp_path}"
    assert fresh_process(
        SHOW, XLA_FLAGS="--xla_force_host_platform_device_count=5", XDG_CACHE_HOME=str(tmp_path)
    ).startswith("5 ")


def test_a_jax_that_has_started_is_left_as_it_is(tmp_path):
    assert fresh_process(f"import jax; jax.devices(); {SHOW}", XDG_CACHE_HOME=str(tmp_path)).startswith("1 ")


@pytest.mark.thorough
def test_programs_with_a_simulator_inside_are_not_kept(tmp_path):
    """Their cache key holds the simulator's address, so every process would leave a useless file behind."""
    code = """
import dataclasses, pathlib, sys
from costate import preset, train, PolicyConfig, PPOConfig, RolloutConfig
config = dataclasses.replace(
    preset("nc-gru", "CartpoleSwingup"), steps=400, policy=PolicyConfig(hidden_size=8),
    rollout=RolloutConfig(environments=4, rollout_length=100), learner=PPOConfig(epochs=1, minibatches=2),
)
train(config, sys.argv[1])
"""
    for number in range(2):
        fresh_process(
            f"import sys; sys.argv = ['', {str(tmp_path / str(number))!r}]\n{code}",
            XDG_CACHE_HOME=str(tmp_path),
        )
    names = [path.name for path in (tmp_path / "costate" / "compiled").iterdir()]
    assert any(name.startswith("jit_update_seeds") for name in names)
    assert not any("with_simulator" in name for name in names)


LEAN = """
import sys
from costate._base.lean import this_process_is_ours
this_process_is_ours()
import costate.envs.engines.envpool, envpool
print("matplotlib" in sys.modules, len([name for name in sys.modules if name.startswith("envpool.jumanji")]))
print([name for name in envpool.list_all_envs() if name in ("CartpoleSwingup-v1", "Ant-v5", "Snake-v1")])
import envpool.jumanji.registration
print("Snake-v1" in envpool.list_all_envs())
"""
OTHER_PROGRAMS = {
    "that use the engine": "import costate.envs.engines.envpool",
    "that call a command": (
        "from costate.cli import main; main(['tasks']); import costate.envs.engines.envpool"
    ),
}


def test_commands_leave_out_what_envpool_brings_for_others():
    unused, ours, asked_for = fresh_process(LEAN).splitlines()
    assert unused == "False 0"
    assert sorted(ast.literal_eval(ours)) == ["Ant-v5", "CartpoleSwingup-v1"]
    assert asked_for == "True"


@pytest.mark.parametrize("what", OTHER_PROGRAMS)
def test_other_programs_have_all_of_envpool(what):
    code = f"{OTHER_PROGRAMS[what]}; import envpool; print('Snake-v1' in envpool.list_all_envs())"
    assert fresh_process(code).splitlines()[-1] == "True"


def test_a_command_does_not_wait_for_libraries_that_it_does_not_use():
    """Each of these takes a good part of a second to import."""
    slow = ("matplotlib", "scipy.integrate", "envpool", "ray")
    code = (
        "import sys, costate.cli, costate.cli.commands.train; "
        f"print([name for name in {slow} if name in sys.modules])"
    )
    assert fresh_process(code) == "[]"


def test_the_families_left_out_are_all_that_are_not_used():
    """A new slow import in EnvPool would cost its time again, and a removed one would go unnoticed."""
    import pathlib
    import re

    import envpool

    from costate._base.lean import UNUSED

    entry = pathlib.Path(envpool.__file__).with_name("entry.py").read_text()
    assert set(re.findall(r"import envpool\.(\S+)\.registration", entry)) == {
        *UNUSED,
        "mujoco.dmc",
        "mujoco.gym",
    }
