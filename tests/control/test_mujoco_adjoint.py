"""Test true co-states against brute force: returns of dm_control's own steps from perturbed states.

Nothing here uses the library's derivatives or its way of stepping. A perturbation is written into
dm_control's arrays, and `Environment.step` does the rest.
"""

import dataclasses
import importlib
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from costate._base.errors import ConfigError
from costate.control.adjoint import costate_recursion
from costate.control.linearisation import Linearisation, open_loop_costates
from costate.control.mujoco_adjoint import state_names
from costate.control.slopes import smooth_slopes
from costate.envs.base import TimeStep
from costate.envs.engines.dm_control import Actuators, load_dm_control, observation_vector
from costate.envs.tasks import TASKS
from costate.policies.controllers import PolicyController, SquashedController
from costate.policies.policy import PolicyConfig, build_policy
from costate.policies.running_stats import RunningStats
from costate.policies.sac_networks import build_actor
from costate.trained.recording import record_episode
from costate.trained.true_costates import policy_costates, true_costates

DISCOUNT = 0.95
# With 1e-6 the derivatives of a quadruped's two sliding legs are wrong by 1 %, on both sides alike. Between
# 1e-7 and 1e-9 only rounding changes.
NUDGE = 1e-7
SEED = 1


def some_controller(kind, task):
    """Return a policy with random weights, so that every path through it matters."""
    record, rng = TASKS[task], np.random.default_rng(0)
    build = build_policy if kind is PolicyController else build_actor
    shapes = eqx.filter_eval_shape(
        build, PolicyConfig(hidden_size=5), jax.random.key(0), record.observation_size, record.action_size
    )
    network = jax.tree.map(lambda leaf: jnp.asarray(rng.normal(size=leaf.shape) * 0.3, jnp.float32), shapes)
    size = record.observation_size
    return kind(network, RunningStats(jnp.full(size, 0.1), jnp.full(size, 2.0), jnp.ones(())), 10.0)


def recorded(task, kind=PolicyController, steps=10, dropout=0.3):
    episode = record_episode(task, some_controller(kind, task), seed=SEED, dropout=dropout, steps=steps)
    return episode, true_costates(episode, DISCOUNT, threads=2)


def nudged_costs(episode, start, react):
    """Return −(R(x ⊕ ε e_i) − R(x ⊖ ε e_i)) / 2ε for every direction e_i at time ``start``."""
    size = 2 * episode.stage.environment.physics.model.nv + episode.stage.environment.physics.model.na
    robot = Actuators(episode.stage.environment)

    @jax.jit
    def decide(shown, seen, is_first, memory):
        no = jnp.zeros(1, bool)
        now = TimeStep(shown[None], jnp.zeros(1), jnp.ones(1), is_first[None], no, seen=seen[None])
        return episode.controller.decide(robot, now, memory)

    with jax.enable_x64(True):
        returns = [
            [_nudged_return(episode, start, nudge, decide if react else None) for nudge in (e, -e)]
            for e in NUDGE * np.eye(size)
        ]
    ahead, behind = np.transpose(returns)
    return -(ahead - behind) / (2 * NUDGE)


def _nudged_return(episode, start, nudge, decide):
    environment, physics = episode.stage.environment, episode.stage.environment.physics
    model, data, nv = physics.model.ptr, physics.data.ptr, physics.model.nv
    mujoco.mj_setState(
        model, data, episode.stage.snapshots[start].state, int(mujoco.mjtState.mjSTATE_INTEGRATION)
    )
    data.sensordata[:] = episode.stage.snapshots[start].sensors
    mujoco.mj_integratePos(model, data.qpos, nudge[:nv], 1.0)
    data.qvel += nudge[nv : 2 * nv]
    data.act += nudge[2 * nv :]
    mujoco.mj_step1(model, data)
    memory, total = jax.tree.map(lambda leaf: leaf[start], episode.memories), 0.0
    for k in range(start, len(episode.controls)):
        control = episode.controls[k]
        if decide is not None:
            control, memory = decide(
                observation_vector(environment) * (sees := episode.seen[k]),
                np.asarray(sees),
                np.asarray(k == 0),
                memory,
            )
            control = np.asarray(control[0])
        total += DISCOUNT ** (k - start) * environment.step(control).reward
    return total


@pytest.mark.quick("CartpoleSwingup-PolicyController-10-1e-07", "WalkerStand-SquashedController-20-0.0001")
@pytest.mark.parametrize(
    ("task", "kind", "steps", "tolerance"),
    [
        # Smooth: differences of a return of about 1 are accurate to 1e-16 / 1e-7, and gradients are of order
        # 1.
        ("CartpoleSwingup", PolicyController, 10, 1e-7),  # RK4, and effort is penalised
        ("FishSwim", SquashedController, 5, 1e-7),  # a free body in water, turned by a quaternion
        # Contacts and joint limits are stiff springs, so the factor of (1e-7)² is large.
        ("CheetahRun", PolicyController, 20, 1e-5),
        ("WalkerStand", SquashedController, 20, 1e-4),
        # Forces at the toes are observed one physics step late, and the actuators have states.
        ("QuadrupedWalk", PolicyController, 4, 1e-5),
    ],
)
def test_costates_are_the_gradients_of_the_cost_to_come(task, kind, steps, tolerance):
    episode, costates = recorded(task, kind, steps)
    assert 0 < episode.seen.sum() < steps
    held, reacting = nudged_costs(episode, 0, react=False), nudged_costs(episode, 0, react=True)
    scale = np.abs(held).max()
    np.testing.assert_allclose(costates.open_loop[0], held, rtol=0, atol=tolerance * scale)
    np.testing.assert_allclose(
        costates.closed_loop[0], reacting, rtol=0, atol=tolerance * np.abs(reacting).max()
    )
    # Otherwise the same co-state would have been tested twice.
    assert np.abs(held - reacting).max() > 100 * tolerance * scale


def beside_a_kink(seed, steps):
    """Record HopperHop beside its kink: it rewards speeds above 0.

    A robot that drops from rest under the tiny controls of an untrained policy has speeds of 1e-12 to 1e-8.
    """
    record = TASKS["HopperHop"]
    policy = build_policy(PolicyConfig(), jax.random.key(0), record.observation_size, record.action_size)
    stats = RunningStats(jnp.zeros(record.observation_size), jnp.ones(record.observation_size), jnp.ones(()))
    episode = record_episode(
        "HopperHop", PolicyController(policy, stats, 10.0), seed=seed, dropout=0.3, steps=steps
    )
    return episode, true_costates(episode, DISCOUNT, threads=1)


def one_sided_costs(episode, start, nudge):
    """Return both one-sided differences of the future cost, with controls held."""
    size = 2 * episode.stage.environment.physics.model.nv
    here = _nudged_return(episode, start, np.zeros(size), None)
    return [
        np.array(
            [
                (here - _nudged_return(episode, start, side * nudge * e, None)) / (side * nudge)
                for e in np.eye(size)
            ]
        )
        for side in (1, -1)
    ]


def test_costates_beside_a_kink_are_those_of_the_own_side():
    episode, costates = beside_a_kink(27, steps=7)
    wide, (ahead, behind) = np.array(one_sided_costs(episode, 0, 1e-6)), one_sided_costs(episode, 0, 3e-10)
    scale = np.abs(ahead).max()
    # Differences of 1e-6 would be wrong by a half. Those too short to reach the kink agree.
    assert np.abs(wide.mean(axis=0) - ahead).max() > 0.4 * scale
    np.testing.assert_allclose(behind, ahead, rtol=0, atol=1e-4 * scale)
    np.testing.assert_allclose(costates.open_loop[0], ahead, rtol=0, atol=1e-4 * scale)
    assert costates.trusted.all()
    assert costates.doubt is None


def test_costates_before_a_kink_that_is_too_near_are_not_trusted():
    """Step 0 ends within 1e-11 of the kink. Later steps have speeds that a difference can tell from 0."""
    episode, costates = beside_a_kink(14, steps=8)
    assert not costates.trusted[0]
    assert costates.trusted[-4:].all()
    ahead, behind = one_sided_costs(episode, 0, 3e-10)
    # The library is right to find no derivative: the two sides differ by more than the limit, and by at most
    # the reported amount.
    between = np.linalg.norm(ahead - behind) / np.linalg.norm(costates.open_loop[0])
    assert 0.01 < between < 3 * costates.open_loop_disagreement[0]
    assert costates.step_disagreement.argmax() in range(4)
    assert costates.doubt is not None
    assert costates.doubt.startswith(
        f"The co-states of {int((~costates.trusted).sum())} of 8 steps are not to be trusted"
    )


@pytest.fixture(scope="module")
def lqr():
    return recorded("LqrLqr21", steps=6, dropout=0.5)


def test_a_chain_of_masses_and_springs_has_the_jacobians_of_the_textbook(lqr):
    """MuJoCo steps v' = v + Δt M⁻¹(Gu − Kq), q' = q + Δt v' (no damping here).

    Each body carries those after it: M_ij = Σ_{k ≥ max(i,j)} m_k.
    """
    episode, costates = lqr
    model = episode.stage.environment.physics.model
    time, stiffness, gear = model.opt.timestep, np.diag(model.jnt_stiffness), np.array([[1.0], [0.0]])
    m = model.body_mass[-2:]
    inverse = np.linalg.inv([[m[0] + m[1], m[1]], [m[1], m[1]]])
    step = np.block(
        [
            [np.eye(2) - time**2 * inverse @ stiffness, time * np.eye(2)],
            [-time * inverse @ stiffness, np.eye(2)],
        ]
    )
    push = np.concatenate([time**2 * inverse @ gear, time * inverse @ gear])
    for t in range(6):
        np.testing.assert_allclose(costates.linearisation.state_jacobians[t], step, atol=1e-8)
        np.testing.assert_allclose(costates.linearisation.control_jacobians[t], push, atol=1e-8)


def test_the_reward_belongs_to_the_state_after_the_step_and_to_the_control(lqr):
    """dm_control's LQR costs ½|q'|² + ½ · 0.1 |u|² − 1, where q' is the position after the step."""
    episode, costates = lqr
    steps, after = costates.linearisation, np.pad(episode.stage.states()[1:, :2], ((0, 0), (0, 2)))
    for t in range(6):
        np.testing.assert_allclose(steps.cost_gradients[t], steps.state_jacobians[t].T @ after[t], atol=1e-8)
        np.testing.assert_allclose(
            steps.control_cost_gradients[t],
            steps.control_jacobians[t].T @ after[t] + 0.1 * episode.controls[t],
            atol=1e-8,
        )
        np.testing.assert_allclose(steps.observation_jacobians[t], np.eye(4), atol=1e-9)
    np.testing.assert_allclose(
        episode.rewards, 1 - 0.5 * (after**2).sum(1) - 0.05 * (episode.controls**2).sum(1), atol=1e-12
    )


def test_features_depend_on_the_state_only_where_the_policy_sees(lqr):
    """ỹ = tanh(W(y − 0.1)/√2 + b) for an observation that arrives, and y = x here."""
    episode, costates = lqr
    weights = np.asarray(episode.controller.policy.encoder.weights, np.float64)
    for t in range(6):
        slope = (1 - episode.features[t] ** 2)[:, None] * weights.T / np.sqrt(2.0)
        np.testing.assert_allclose(costates.feature_jacobians[t], slope * episode.seen[t], atol=1e-7)


def test_threads_change_nothing(lqr):
    episode, costates = lqr
    alone = true_costates(episode, DISCOUNT, threads=1)
    np.testing.assert_array_equal(alone.closed_loop, costates.closed_loop)
    np.testing.assert_array_equal(
        alone.linearisation.observation_jacobians, costates.linearisation.observation_jacobians
    )


def test_a_horizon_counts_only_the_steps_within_it(lqr):
    """A horizon of two from x_0 is an episode of two steps.

    Near the end a horizon changes nothing.
    """
    episode, costates = lqr
    short, two = true_costates(episode, DISCOUNT, horizon=2), slice(0, 2)
    steps = Linearisation(*(array[two] for array in short.linearisation))
    part = dataclasses.replace(
        episode,
        **{
            name: getattr(episode, name)[two]
            for name in ("observations", "seen", "memories", "features", "hiddens", "controls", "rewards")
        },
    )
    np.testing.assert_allclose(short.open_loop[0], open_loop_costates(steps, DISCOUNT)[0], rtol=1e-12)
    np.testing.assert_allclose(short.closed_loop[0], policy_costates(part, steps, DISCOUNT)[0], rtol=1e-12)
    np.testing.assert_allclose(short.open_loop[4:], costates.open_loop[4:], rtol=1e-12)
    np.testing.assert_allclose(short.closed_loop[4:], costates.closed_loop[4:], rtol=1e-12)
    assert np.abs(short.closed_loop[3] - costates.closed_loop[3]).max() > 0.01


def test_the_recursion_is_that_of_a_geometric_series():
    """With A = a, a gradient of 1 in every step and λ_T = c: λ_t = Σ_{k<T−t} (γa)ᵏ + (γa)^{T−t} c."""
    with jax.enable_x64(True):
        found = costate_recursion(jnp.full((4, 1, 1), 0.8), jnp.ones((4, 1)), jnp.full(1, 5.0), 0.9)
    r = 0.9 * 0.8
    np.testing.assert_allclose(
        found[:, 0], [(1 - r**n) / (1 - r) + 5 * r**n for n in (4, 3, 2, 1)], rtol=1e-13
    )


def test_a_jump_beside_the_state_is_not_a_slope():
    """The first column is 3 on both sides, up to curvature.

    In the second a jump of 0.1 lies within a millionth ahead, in the third behind.
    """
    forward, backward = (
        np.array([[3.0 + 1e-4, 1e5, 7.0], [0.0, 2.0, 1.0]]),
        np.array([[3.0 - 1e-4, 5.0, -1e5], [0.0, 2.0, 1.0]]),
    )
    np.testing.assert_allclose(
        smooth_slopes(forward, backward), [[3.0, 5.0, 7.0], [0.0, 2.0, 1.0]], rtol=1e-12
    )


def test_components_have_names():
    fish = TASKS["FishSwim"].stage(0).state_names
    assert fish[:7] == ("root.x", "root.y", "root.z", "root.turn_x", "root.turn_y", "root.turn_z", "tail1")
    assert fish[13] == "root.x.velocity"
    quadruped = TASKS["QuadrupedWalk"].stage(0).environment.physics.model.ptr
    assert state_names(quadruped)[-1] == "extend_back_left.activation"
    assert len(state_names(quadruped)) == 2 * quadruped.nv + quadruped.na


def test_a_recorded_episode_is_what_dm_control_does():
    """Replayed from the same seed with the recorded controls, by dm_control alone."""
    episode = record_episode(
        "FingerTurnHard", some_controller(SquashedController, "FingerTurnHard"), seed=4, dropout=0.5, steps=7
    )
    environment = load_dm_control("FingerTurnHard", "finger", "turn_hard", 4)
    timestep = environment.reset()
    for t in range(7):
        np.testing.assert_array_equal(
            np.concatenate([np.ravel(value) for value in timestep.observation.values()]),
            episode.observations[t],
        )
        np.testing.assert_array_equal(environment.physics.get_state(), episode.stage.states()[t])
        timestep = environment.step(episode.controls[t])
        assert timestep.reward == episode.rewards[t]
    assert not episode.terminated
    assert episode.hiddens.shape == (7, 5) == episode.features.shape


def test_a_task_without_a_mujoco_model_is_refused():
    task = dataclasses.replace(
        TASKS["PendulumSwingup"], name="DoubleIntegrator", domain="double_integrator", goal="energy"
    )
    with pytest.raises(
        ConfigError,
        match=r"DoubleIntegrator has no MuJoCo model: "
        r"dm_control has no task 'energy' of a robot 'double_integrator'",
    ):
        task.stage(0)


@pytest.mark.parametrize(
    ("settings", "message"), [({"steps": 0}, "steps is 0"), ({"dropout": 1.5}, "between 0 and 1")]
)
def test_impossible_recordings_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        record_episode(
            "PendulumSwingup",
            some_controller(PolicyController, "PendulumSwingup"),
            **({"seed": 0, "dropout": 0.0} | settings),
        )


def test_impossible_futures_are_refused(lqr):
    with pytest.raises(ConfigError, match=r"discount is 1.5"):
        true_costates(lqr[0], 1.5)
    with pytest.raises(ConfigError, match=r"horizon is 0"):
        true_costates(lqr[0], DISCOUNT, horizon=0)


@pytest.mark.parametrize(
    ("package", "module"),
    [("mujoco", "costate.control.mujoco_adjoint"), ("dm_control", "costate.envs.engines.dm_control")],
)
def test_what_is_not_installed_is_said(monkeypatch, package, module):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, module)
    with pytest.raises(
        ConfigError, match=r"which is not installed. Install it with: pip install 'costate\[adjoint\]'"
    ):
        importlib.import_module(module)
