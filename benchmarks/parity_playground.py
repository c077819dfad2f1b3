"""Compare MuJoCo Playground's tasks with EnvPool's and dm_control's: the tables of docs/playground.md.

    python benchmarks/parity_playground.py --out docs/results/playground_parity
        [--run CartpoleSwingup=runs/CartpoleSwingup/nc-gru/seed-0 …]

Every task is compared in states of dm_control. The observation and reward in the state are compared; then the
result of one step with the same action, in dm_control, in Playground's model run by MuJoCo itself, and in
MJX; and the return of one policy on whole episodes, in EnvPool and in Playground. EnvPool cannot be set to a
state, but tests/envs/test_tasks_against_dm_control.py shows that it steps as dm_control does.
"""

import os

os.environ.setdefault("MUJOCO_GL", "disable")

import argparse
import json
import pathlib
import time
import types
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import mujoco
import numpy as np

from costate.envs.base import AbstractEnv
from costate.envs.engines.dm_control import load_dm_control, observation_vector
from costate.envs.engines.playground import Simulation, Simulator, load_simulator, rearrangement
from costate.envs.sensors import SensorConfig, SensorEnv
from costate.envs.tasks import PAPER_TASKS, TASKS
from costate.learners.episodes import first_episodes
from costate.policies.controllers import AbstractController
from costate.runs.run_directory import open_run
from costate.trained.evaluation import SEED_OFFSET
from costate.trained.trained import load_controller
from costate.training.startup import keep_compiled_programs

FAMILY = "playground:"
# The state is taken after at most this many steps of an episode.
LATEST = 30
OPTIONS = ("timestep", "integrator", "cone", "solver", "iterations", "ls_iterations", "density")
DISABLED = (
    ("contact", mujoco.mjtDisableBit.mjDSBL_CONTACT),
    ("implicit damping in Euler", mujoco.mjtDisableBit.mjDSBL_EULERDAMP),
)


class Moment(NamedTuple):
    """A state of dm_control, and the result of one step from it."""

    qpos: np.ndarray
    qvel: np.ndarray
    warmstart: np.ndarray
    target: np.ndarray | None
    """Position of the target in this episode."""
    action: np.ndarray
    observation: np.ndarray
    reward: float
    next_qpos: np.ndarray
    next_qvel: np.ndarray
    next_observation: np.ndarray
    next_reward: float


def moments(name: str, count: int, seed: int) -> list[Moment]:
    """Return states after random actions. Each comes from a new episode, so that targets differ too."""
    task, random = TASKS[name], np.random.default_rng(seed)
    environment = load_dm_control(name, task.domain, task.goal, seed)
    return [_moment(environment, random, number % 4 == 3) for number in range(count)]


def _moment(environment: Any, random: np.random.Generator, near: bool) -> Moment:
    """Return one state. If ``near``, move the target close: random actions seldom reach it."""
    spec, physics = environment.action_spec(), environment.physics
    environment.reset()
    for _ in range(random.integers(1, LATEST)):
        environment.step(random.uniform(spec.minimum, spec.maximum))
    model, data = physics.model.ptr, physics.data.ptr
    if near and _find(model, mujoco.mjtObj.mjOBJ_SITE, "tip") >= 0:
        tip = data.site_xpos[_find(model, mujoco.mjtObj.mjOBJ_SITE, "tip")]
        model.site_pos[_find(model, mujoco.mjtObj.mjOBJ_SITE, "target")] = np.add(tip, [0.01, 0.0, 0.0])
    if near and _find(model, mujoco.mjtObj.mjOBJ_GEOM, "mouth") >= 0:
        mouth = data.geom_xpos[_find(model, mujoco.mjtObj.mjOBJ_GEOM, "mouth")]
        model.geom_pos[_find(model, mujoco.mjtObj.mjOBJ_GEOM, "target")] = np.add(mouth, [0.05, 0.0, 0.03])
    action = random.uniform(spec.minimum, spec.maximum)
    physics.set_control(action)
    physics.forward()
    qpos, qvel, warmstart = (
        np.array(part) for part in (physics.data.qpos, physics.data.qvel, physics.data.qacc_warmstart)
    )
    now = observation_vector(environment), float(environment.task.get_reward(physics))
    timestep = environment.step(action)
    after = (
        physics.data.qpos.copy(),
        physics.data.qvel.copy(),
        observation_vector(environment),
        float(timestep.reward),
    )
    return Moment(qpos, qvel, warmstart, _target(model), action, *now, *after)


def _target(model: Any) -> np.ndarray | None:
    """Return the target of a finger or a fish. The target of a cup belongs to the cup."""
    if _find(model, mujoco.mjtObj.mjOBJ_SITE, "tip") >= 0:
        return np.array(model.site_pos[_find(model, mujoco.mjtObj.mjOBJ_SITE, "target")])
    if _find(model, mujoco.mjtObj.mjOBJ_GEOM, "mouth") >= 0:
        return np.array(model.geom_pos[_find(model, mujoco.mjtObj.mjOBJ_GEOM, "target")])
    return None


def _find(model: Any, kind: Any, name: str) -> int:
    """Return the id of an object in MuJoCo; negative if there is none."""
    return int(mujoco.mj_name2id(model, kind, name))


class Shown(NamedTuple):
    """Observation and reward of Playground, in the order of the task's record."""

    observation: np.ndarray
    reward: np.ndarray


def shown_by_model(name: str, environment: Any, data: mujoco.MjData, action: np.ndarray) -> Shown:
    """Apply Playground's own functions to a state that MuJoCo has computed."""
    fields = types.SimpleNamespace(
        qpos=jnp.asarray(data.qpos),
        qvel=jnp.asarray(data.qvel),
        xpos=jnp.asarray(data.xpos),
        xmat=jnp.asarray(data.xmat.reshape(-1, 3, 3)),
        site_xpos=jnp.asarray(data.site_xpos),
        geom_xpos=jnp.asarray(data.geom_xpos),
        geom_xmat=jnp.asarray(data.geom_xmat.reshape(-1, 3, 3)),
        sensordata=jnp.asarray(data.sensordata),
    )
    task = TASKS[FAMILY + name]
    with jax.numpy_rank_promotion("allow"):
        reward = environment._get_reward(fields, jnp.asarray(action), {}, {})
        observation = environment._get_obs(fields, {})
    return Shown(np.asarray(observation)[rearrangement(task.shown, task.observation)], np.asarray(reward))


def placed(environment: Any, moment: Moment) -> mujoco.MjData:
    """Set MuJoCo with Playground's model to a state of dm_control."""
    data = mujoco.MjData(environment.mj_model)
    data.qpos, data.qvel, data.ctrl, data.qacc_warmstart = (
        moment.qpos,
        moment.qvel,
        moment.action,
        moment.warmstart,
    )
    if moment.target is not None:
        data.mocap_pos[0] = moment.target
    mujoco.mj_forward(environment.mj_model, data)
    return data


def by_state(name: str, environment: Any, found: list[Moment]) -> Shown:
    """Return what Playground observes and rewards in the states of dm_control."""
    shown = [
        shown_by_model(name, environment, placed(environment, moment), moment.action) for moment in found
    ]
    return Shown(*(np.stack(part) for part in zip(*shown, strict=True)))


class Stepped(NamedTuple):
    """Results of one control step from each state."""

    qpos: np.ndarray
    qvel: np.ndarray
    shown: Shown


def stepped_by_mujoco(name: str, environment: Any, found: list[Moment]) -> tuple[Stepped, Shown]:
    """Step Playground's model in MuJoCo as MJX does.

    Also return the observations if positions of bodies were recomputed after the step.
    """
    rows = []
    for moment in found:
        data = placed(environment, moment)
        mujoco.mj_step(environment.mj_model, data, environment.n_substeps)
        before = shown_by_model(name, environment, data, moment.action)
        mujoco.mj_forward(environment.mj_model, data)
        rows.append(
            (
                data.qpos.copy(),
                data.qvel.copy(),
                *before,
                *shown_by_model(name, environment, data, moment.action),
            )
        )
    qpos, qvel, observation, reward, fresh_observation, fresh_reward = (
        np.stack(part) for part in zip(*rows, strict=True)
    )
    return Stepped(qpos, qvel, Shown(observation, reward)), Shown(fresh_observation, fresh_reward)


def stepped_by_mjx(name: str, simulator: Simulator, simulation: Simulation, found: list[Moment]) -> Stepped:
    """Do the same in MJX, with as many simulations as there are states."""
    data = simulation.data
    put = {
        "qpos": np.stack([moment.qpos for moment in found]),
        "qvel": np.stack([moment.qvel for moment in found]),
        "qacc_warmstart": np.stack([moment.warmstart for moment in found]),
    }
    if found[0].target is not None:
        put["mocap_pos"] = np.stack([moment.target for moment in found])[:, None]
    data = data.replace(**{field: jnp.asarray(value, jnp.float32) for field, value in put.items()})
    after = simulator.advance(
        simulation.replace(data=data), jnp.asarray(np.stack([moment.action for moment in found]), jnp.float32)
    )
    task = TASKS[FAMILY + name]
    observation = np.asarray(after.obs)[:, rearrangement(task.shown, task.observation)]
    return Stepped(
        np.asarray(after.data.qpos), np.asarray(after.data.qvel), Shown(observation, np.asarray(after.reward))
    )


class RandomNetwork(AbstractController):
    """u = tanh(W y) with random weights of deviation 2/√O: an untrained policy that moves."""

    weights: jax.Array
    stats: Any = None

    def feature(self, now, memory):
        raise NotImplementedError("a network without memory has no co-state")

    hidden = core_state = with_core_state = feature

    def empty_memory(self, env):
        return ()

    def decide(self, env, seen, memory):
        return jnp.tanh(seen.observation @ self.weights), memory


def random_network(name: str, seed: int) -> RandomNetwork:
    task = TASKS[name]
    weights = (
        2.0
        / np.sqrt(task.observation_size)
        * np.random.default_rng(seed).normal(size=(task.observation_size, task.action_size))
    )
    return RandomNetwork(weights=jnp.asarray(weights, jnp.float32))


class Played(NamedTuple):
    returns: np.ndarray
    starts: np.ndarray
    """First observations."""


def played(env: AbstractEnv, controller: AbstractController, seed: int) -> Played:
    key_reset, key_steps = jax.random.split(jax.random.key(seed))
    state, timestep = env.reset(key_reset)
    returns = jax.jit(lambda *arguments: first_episodes(env, *arguments).returns)(
        controller, state, timestep, key_steps
    )
    return Played(np.asarray(returns), np.asarray(timestep.complete))


def steps_per_second(task: str, batch: int, steps: int) -> float:
    """Measure the physics alone with random actions, on one device; the better of two."""
    env: AbstractEnv = TASKS[task].build(batch, [0])
    actions = jax.random.uniform(jax.random.key(0), (steps, batch, env.action_size), minval=-1.0, maxval=1.0)
    keys = jax.random.split(jax.random.key(1), steps)
    program = jax.jit(
        lambda state: jax.lax.scan(lambda s, now: env.step(s, *now), state, (actions, keys))[1].reward
    )
    times = []
    for _ in range(3):
        state, _ = env.reset(jax.random.key(2))
        began = time.perf_counter()
        jax.block_until_ready(program(state))
        times.append(time.perf_counter() - began)
    env.close()
    return batch * steps / min(times[1:])


def largest(difference: np.ndarray) -> float:
    return float(np.max(np.abs(difference), initial=0.0))


def by_group(name: str, difference: np.ndarray) -> dict[str, float]:
    """Return the largest difference in each group of sensors, in Playground's order."""
    layout = TASKS[FAMILY + name].observation
    ends = np.cumsum([size for _, size in layout])
    return {
        group: largest(part)
        for (group, _), part in zip(layout, np.split(difference, ends[:-1], axis=1), strict=True)
    }


def options(model: Any) -> dict[str, Any]:
    values = {option: float(getattr(model.opt, option)) for option in OPTIONS}
    disabled = [name for name, bit in DISABLED if int(model.opt.disableflags) & int(bit)]
    return values | {"disabled": disabled, "bodies": int(model.nbody)}


def compare_models(name: str, environment: Any, found: list[Moment], seed: int) -> dict[str, Any]:
    """Compare the models, and what they observe and do in MuJoCo itself, as plain data.

    This is everything that needs no compiling.
    """
    task = TASKS[name]
    original = load_dm_control(name, task.domain, task.goal, seed)
    same = by_state(name, environment, found)
    native, refreshed = stepped_by_mujoco(name, environment, found)
    reward = stacked(found, "reward")
    return {
        "observation": {
            "dm_control": task.observation,
            "playground": TASKS[FAMILY + name].observation,
            "shown": TASKS[FAMILY + name].shown,
        },
        "options": {
            "dm_control": options(original.physics.model.ptr),
            "playground": options(environment.mj_model),
        },
        "control_timestep": {"dm_control": original.control_timestep(), "playground": environment.dt},
        "mass": {
            "dm_control": masses(original.physics.model.ptr),
            "playground": masses(environment.mj_model),
        },
        "same state": {
            "observation": by_group(name, same.observation - stacked(found, "observation")),
            "reward": largest(same.reward - reward),
            "rewards": _range(reward),
        },
        "one step": {
            "change of qvel": largest(stacked(found, "next_qvel") - stacked(found, "qvel")),
            "model − dm_control": _differences(
                native, stacked(found, "next_qpos"), stacked(found, "next_qvel")
            ),
            "shown late": by_group(name, native.shown.observation - refreshed.observation),
            "rewarded late": largest(native.shown.reward - refreshed.reward),
        },
    }


def compare_mjx(name: str, env: AbstractEnv, simulator: Simulator, found: list[Moment]) -> dict[str, Any]:
    """Compare one step in MJX with the same model in MuJoCo, and with dm_control."""
    mjx = stepped_by_mjx(name, simulator, env.reset(jax.random.key(0))[0].simulation, found)
    native, _ = stepped_by_mujoco(name, simulator.environment, found)
    return {
        "MJX − model": _differences(mjx, native.qpos, native.qvel),
        "MJX − dm_control": _differences(mjx, stacked(found, "next_qpos"), stacked(found, "next_qvel")),
        "observation": by_group(name, mjx.shown.observation - stacked(found, "next_observation")),
        "reward": largest(mjx.shown.reward - stacked(found, "next_reward")),
    }


def stacked(found: list[Moment], field: str) -> np.ndarray:
    return np.stack([getattr(moment, field) for moment in found])


def masses(model: Any) -> dict[str, float]:
    names = (mujoco.mj_id2name(model, mujoco.mjtObj.mjOBJ_BODY, i) for i in range(1, model.nbody))
    return {body: float(mass) for body, mass in zip(names, model.body_mass[1:], strict=True)}


def _differences(stepped: Stepped, qpos: np.ndarray, qvel: np.ndarray) -> dict[str, float]:
    median = np.median(np.abs(stepped.qvel - qvel).max(axis=1))
    return {
        "qpos": largest(stepped.qpos - qpos),
        "qvel": largest(stepped.qvel - qvel),
        "qvel, median over states": float(median),
    }


def _range(values: np.ndarray) -> list[float]:
    return [float(values.min()), float(values.max())]


def returns_of(
    name: str, label: str, controller: AbstractController, sensors: SensorConfig, env: AbstractEnv, seed: int
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "task": name,
        "policy": label,
        "blackout": sensors.dropout,
        "episodes": env.batch_size,
    }
    pool = TASKS[name].build(env.batch_size, [seed + SEED_OFFSET])
    for engine, task, one in (("envpool", name, pool), ("playground", FAMILY + name, env)):
        result = played(SensorEnv(one, sensors, TASKS[task].observation), controller, seed)
        row[engine] = {
            "mean": float(result.returns.mean()),
            "standard error": float(result.returns.std(ddof=1) / np.sqrt(len(result.returns))),
            "deviation of starts": [float(value) for value in result.starts.std(axis=0)],
        }
    pool.close()
    return row


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *rows)) + "\n"


def markdown(report: dict[str, Any]) -> str:
    titles = (
        "task",
        "same state: observation",
        "reward",
        "one step: qvel changes by",
        "model − dm_control",
        "MJX − model",
        "shown late",
        "rewarded late",
    )
    rows = []
    for name, found in report["tasks"].items():
        same, step = found["same state"], found["one step"]
        groups = ", ".join(f"{group} {value:.0e}" for group, value in same["observation"].items())
        mjx = _number(report["mjx"][name]["MJX − model"]) if name in report["mjx"] else "not measured"
        late = f"{max(step['shown late'].values()):.2g}", f"{step['rewarded late']:.2g}"
        rows.append(
            (
                name,
                groups,
                f"{same['reward']:.0e}",
                f"{step['change of qvel']:.3g}",
                _number(step["model − dm_control"]),
                mjx,
                *late,
            )
        )
    returns = (
        (
            row["task"],
            row["policy"],
            f"{row['blackout']:.0%}",
            str(row["episodes"]),
            _mean(row["envpool"]),
            _mean(row["playground"]),
        )
        for row in report["returns"]
    )
    speeds = (
        (name, f"{row['envpool']:,.0f}", f"{row['playground']:,.0f}") for name, row in report["speed"].items()
    )
    parts = (
        table(titles, rows),
        table(("task", "policy", "blackout", "episodes", "EnvPool", "Playground"), returns),
        table(("task", "EnvPool, steps/s", "Playground, steps/s"), speeds),
    )
    return "\n".join(parts)


def _number(differences: dict[str, float]) -> str:
    return f"{differences['qvel, median over states']:.1g} … {differences['qvel']:.1g}"


def _mean(row: dict[str, float]) -> str:
    return f"{row['mean']:.1f} ± {row['standard error']:.1f}"


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", nargs="*", default=list(PAPER_TASKS))
    parser.add_argument(
        "--mjx",
        nargs="*",
        default=list(PAPER_TASKS),
        metavar="TASK",
        help="tasks to compile for MJX too, for a step and for returns",
    )
    parser.add_argument(
        "--batch", type=int, default=16, help="number of states to compare, and of episodes of each policy"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--run",
        nargs="*",
        default=[],
        metavar="TASK=DIR",
        help="trained runs to evaluate on both, with the sensors of their training",
    )
    parser.add_argument(
        "--speed",
        nargs="*",
        default=[],
        metavar="TASK",
        help="tasks whose steps per second to measure, with 32 environments",
    )
    parser.add_argument(
        "--out", type=pathlib.Path, required=True, help="without suffix; .md and .json are written"
    )
    return parser.parse_args()


def main() -> None:
    arguments = parse()
    keep_compiled_programs()
    report: dict[str, Any] = {
        "states": arguments.batch,
        "seed": arguments.seed,
        "tasks": {},
        "mjx": {},
        "returns": [],
        "speed": {},
    }
    runs = [
        (task, pathlib.Path(folder)) for task, _, folder in (item.partition("=") for item in arguments.run)
    ]

    def save() -> None:
        # Saved after every task, because compiling takes minutes on a small machine.
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        arguments.out.with_suffix(".md").write_text(markdown(report))

    found = {name: moments(name, arguments.batch, arguments.seed) for name in arguments.tasks}
    for name in arguments.tasks:
        report["tasks"][name] = compare_models(
            name, load_simulator(name).environment, found[name], arguments.seed
        )
    save()
    for name in arguments.mjx:
        print(name, flush=True)
        env = TASKS[FAMILY + name].build(arguments.batch, [arguments.seed + SEED_OFFSET])
        report["mjx"][name] = compare_mjx(name, env, load_simulator(name), found[name])
        network = random_network(name, arguments.seed)
        report["returns"].append(
            returns_of(name, "random network", network, SensorConfig(0.0), env, arguments.seed)
        )
        save()
        for _, folder in (run for run in runs if run[0] == name):
            run = open_run(folder)
            checkpoint, controller = load_controller(run, None, print)
            label = f"{folder.parent.name}, {checkpoint.env_steps:,} steps in EnvPool"
            report["returns"].append(
                returns_of(name, label, controller, run.config.sensors, env, arguments.seed)
            )
        save()
    for name in arguments.speed:
        report["speed"][name] = {
            engine: steps_per_second(task, 32, 300)
            for engine, task in (("envpool", name), ("playground", FAMILY + name))
        }
        save()
    print(markdown(report))


if __name__ == "__main__":
    main()
