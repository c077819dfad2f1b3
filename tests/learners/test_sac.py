"""Soft actor-critic against a reference that is written out step by step in float64."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.linalg

from costate._base.errors import ConfigError
from costate.learners.replay import (
    Replay,
    ReplayConfig,
    ReplayRows,
    Windows,
    append,
    empty_replay,
    sample,
    usable_steps,
)
from costate.learners.sac.config import SACConfig
from costate.learners.sac.losses import Networks, loss_weights, q_and_gradients, sac_loss
from costate.learners.sac.update import SACState, initial_sac_state, sac_update
from costate.policies.cores.costate_cell import CostateCellConfig
from costate.policies.cores.ctrnn import CTRNNConfig
from costate.policies.cores.gru import GRUConfig
from costate.policies.cores.lstm import LSTMConfig
from costate.policies.cores.memoryless import Memoryless
from costate.policies.costate_loss import targets_from_slopes
from costate.policies.policy import Encoder, PolicyConfig
from costate.policies.readouts.linear import QuadraticReadoutConfig
from costate.policies.running_stats import RunningStats
from costate.policies.sac_networks import RecurrentCritic, build_actor, read_window, sac_inputs

OBSERVED, CONTROLS, HIDDEN, ROWS, WINDOWS = 3, 2, 4, 6, 2
CLIP = 10.0
CONFIG = SACConfig(
    head_width=5,
    critic="sighted",
    replay=ReplayConfig(capacity=400, window=ROWS, burn_in=2, batch=WINDOWS),
    costate_coef=0.3,
)


# The default core is frozen, so that it cannot be shared by accident.
def state_of(core=GRUConfig(), config: SACConfig = CONFIG, influence="constant") -> SACState:  # noqa: B008
    stats = RunningStats(jnp.array([0.1, -0.2, 0.3]), jnp.array([1.5, 0.7, 1.0]), jnp.array(100.0))
    state = initial_sac_state(
        config,
        PolicyConfig(HIDDEN, core, QuadraticReadoutConfig(influence)),
        jax.random.key(0),
        stats,
        CONTROLS,
    )
    # Readouts start near zero and the width of exploration at zero: moved, so that nothing is compared at a
    # special point.
    moved = jax.tree.map(
        lambda leaf: leaf + 0.3 * jax.random.normal(jax.random.key(leaf.size), leaf.shape), state.networks
    )
    target = jax.tree.map(
        lambda leaf: leaf + 0.1 * jax.random.normal(jax.random.key(leaf.size + 1), leaf.shape), moved.critic
    )
    return dataclasses.replace(state, networks=moved, target=target)


def rows_of(steps: int, streams: int, seed: int = 0) -> ReplayRows:
    """Some observations are dark; episodes end by time limit, by termination and by being abandoned."""
    rng = np.random.default_rng(seed)
    observation = rng.normal(size=(steps, streams, OBSERVED)) * (rng.random((steps, streams, 1)) > 0.4)
    last = rng.random((steps, streams)) < 0.15
    first = np.concatenate(
        [np.ones((1, streams), bool), last[:-1] | (rng.random((steps - 1, streams)) < 0.05)]
    )
    return ReplayRows(
        observation=jnp.asarray(observation, jnp.float32),
        action=jnp.asarray(rng.uniform(-1.0, 1.0, (steps, streams, CONTROLS)), jnp.float32),
        reward=jnp.asarray(rng.normal(size=(steps, streams)), jnp.float32),
        discount=jnp.asarray(rng.random((steps, streams)) > 0.2, jnp.float32),
        is_first=jnp.asarray(first),
        is_last=jnp.asarray(last & ~first),
        seen=jnp.asarray((observation != 0.0).any(-1)),
    )


def windows_of(seed: int = 0, sighted: bool = False) -> Windows:
    rows = rows_of(ROWS, WINDOWS, seed)
    if sighted:
        rows = dataclasses.replace(
            rows, complete=jax.random.normal(jax.random.key(seed), rows.observation.shape)
        )
    return Windows(rows, usable_steps(rows), rows_of(1, WINDOWS, seed + 50).action[0], None)


def double(tree):
    return jax.tree.map(lambda leaf: leaf.astype(jnp.float64) if leaf.dtype == jnp.float32 else leaf, tree)


def step_by_step(network, inputs, is_first, start):
    """Compute states before and hidden states after every row by a loop; the burn-in passes no gradient."""
    state, before, after = start, [], []
    for t in range(ROWS):
        state = jnp.where(is_first[t][:, None], 0.0, state)
        before.append(state)
        state = jax.vmap(network.core.step)(network.encoder.encode(inputs[t]), state)
        if t == CONFIG.replay.burn_in - 1:
            state = jax.lax.stop_gradient(state)
        after.append(network.core.expose(state))
    return before, after


def reference(
    part: str, networks, target, stats, windows: Windows, noise, config: SACConfig, of_actor, of_critic
):
    """Return one loss as in the textbook, for the gradient of one network; the others are constants in it.

    Memories start as they are given.
    """
    rows, burn_in, usable = windows.rows, config.replay.burn_in, np.asarray(windows.usable)
    actor, critic = networks.actor, networks.critic
    before = jnp.concatenate([windows.before[None], rows.action[:-1]])
    inputs = sac_inputs(stats, CLIP, rows.observation, rows.seen, before, rows.is_first)
    critic_inputs = (
        inputs
        if config.critic == "recurrent"
        else sac_inputs(stats, CLIP, rows.complete, jnp.ones_like(rows.seen), before, rows.is_first)
    )
    features = actor.encoder.encode(inputs)
    actor_before, actor_hidden = step_by_step(actor, inputs, rows.is_first, of_actor)
    critic_before, critic_hidden = step_by_step(critic, critic_inputs, rows.is_first, of_critic)
    target_hidden = step_by_step(target, critic_inputs, rows.is_first, of_critic)[1]
    alpha, total, count = jnp.exp(networks.log_temperature), 0.0, 0
    for t in range(burn_in, ROWS - 1):
        for n in range(WINDOWS):
            if not usable[t, n]:
                continue
            count += 1
            policy = actor.distribution(features[t, n], actor_hidden[t][n])
            action, log_prob = policy.sample_and_log_prob(noise[t - burn_in, n])
            if part == "actor":
                total += alpha * log_prob - jnp.minimum(*critic.values(critic_hidden[t][n], action))
            if part == "temperature":
                total += networks.log_temperature * (-log_prob - config.target_entropy * CONTROLS)
            if part == "critic":
                next_policy = actor.distribution(features[t + 1, n], actor_hidden[t + 1][n])
                following, its_log_prob = next_policy.sample_and_log_prob(noise[t + 1 - burn_in, n])
                after = jnp.minimum(*target.values(target_hidden[t + 1][n], following)) - alpha * its_log_prob
                backup = rows.reward[t, n] + config.discount * rows.discount[t, n] * after
                total += sum(
                    0.5 * (q - jax.lax.stop_gradient(backup)) ** 2
                    for q in critic.values(critic_hidden[t][n], rows.action[t, n])
                )
            if part == "costate":
                frozen, held = jax.lax.stop_gradient((critic, critic_before[t][n]))
                fixed = jax.lax.stop_gradient(action)
                feature = jax.lax.stop_gradient(critic.encoder.encode(critic_inputs[t, n]))

                def value(ỹ, frozen=frozen, held=held, fixed=fixed):
                    return jnp.minimum(*frozen.values(frozen.core.expose(frozen.core.step(ỹ, held)), fixed))

                costate = jax.grad(value)(feature)
                of_networks = [actor_hidden[t][n], critic_hidden[t][n]]
                if config.costate_hidden == "before":
                    of_networks = [
                        actor.core.expose(actor_before[t][n]),
                        critic.core.expose(critic_before[t][n]),
                    ]
                for hidden in of_networks[: 2 if config.costate_memory == "both" else 1]:
                    # ε under both roots, as the loss is defined.
                    lengths = jnp.sqrt(hidden @ hidden + 1e-8) * jnp.sqrt(costate @ costate + 1e-8)
                    total += config.costate_coef * (1.0 - hidden @ costate / lengths)
    return total / count


def assert_gradients_of_the_reference(
    config: SACConfig, state: SACState, windows: Windows, of_actor, of_critic
):
    """Compare the gradients of all losses by all networks, in float64."""
    with jax.enable_x64(True):
        state, windows, of_actor, of_critic = double((state, windows, of_actor, of_critic))
        noise = jax.random.normal(
            jax.random.key(3), (ROWS - CONFIG.replay.burn_in, WINDOWS, CONTROLS), jnp.float64
        )
        weight = double(loss_weights(windows.usable, CONFIG.replay.burn_in))
        loss = jax.jit(
            jax.grad(
                lambda networks: sac_loss(
                    networks, config, CLIP, state.target, state.observation_stats, windows, weight, noise
                )[0]
            )
        )
        found = loss(state.networks)

        def expected(part):
            loss = lambda n: reference(  # noqa: E731
                part, n, state.target, state.observation_stats, windows, noise, config, of_actor, of_critic
            )
            return jax.jit(jax.grad(loss))(state.networks)

        # Of each loss only the gradient by the network that it is for; the co-state loss is for the memories
        # that it is asked to pull.
        costate = expected("costate")
        actor = jax.tree.map(jnp.add, expected("actor").actor, costate.actor)
        critic = jax.tree.map(jnp.add, expected("critic").critic, costate.critic)
        # Weights of rows are float32.
        close = lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-10)  # noqa: E731
        jax.tree.map(close, found.actor, actor)
        jax.tree.map(close, found.critic, critic)
        close(found.log_temperature, expected("temperature").log_temperature)


@pytest.mark.quick("core1-constant-recurrent-actor", "core4-constant-sighted-both")
@pytest.mark.parametrize(
    ("core", "influence", "critic", "memory"),
    [
        (GRUConfig(), "constant", "recurrent", "both"),
        (CTRNNConfig(), "constant", "recurrent", "actor"),
        (CTRNNConfig(), "constant", "recurrent", "both"),
        (CostateCellConfig(), "observed", "recurrent", "both"),
        (GRUConfig(), "constant", "sighted", "both"),
        (GRUConfig(), "constant", "sighted", "actor"),
    ],
)
def test_every_network_gets_the_gradient_of_its_own_losses(core, influence, critic, memory):
    config = dataclasses.replace(CONFIG, critic=critic, costate_memory=memory)
    empty = jnp.zeros((WINDOWS, HIDDEN))
    assert_gradients_of_the_reference(
        config, state_of(core, config, influence), windows_of(sighted=critic == "sighted"), empty, empty
    )


def test_the_hidden_state_before_an_observation_can_be_compared_instead():
    config = dataclasses.replace(CONFIG, critic="recurrent", costate_memory="both", costate_hidden="before")
    empty = jnp.zeros((WINDOWS, HIDDEN))
    state = state_of(CTRNNConfig(), config)
    assert_gradients_of_the_reference(config, state, windows_of(), empty, empty)


def test_a_share_of_the_costate_loss_is_that_share_of_its_weight():
    """As the weight of the loss grows; the rest of the loss stays."""
    state, windows = state_of(), windows_of(sighted=CONFIG.sighted)
    noise = jax.random.normal(jax.random.key(3), (ROWS - CONFIG.replay.burn_in, WINDOWS, CONTROLS))
    weight = loss_weights(windows.usable, CONFIG.replay.burn_in)

    def loss(coef: float, scale: float) -> float:
        config = dataclasses.replace(CONFIG, costate_coef=coef)
        given = (state.networks, config, CLIP, state.target, state.observation_stats, windows, weight, noise)
        return float(sac_loss(*given, scale)[0])

    assert loss(0.4, 0.25) == pytest.approx(loss(0.1, 1.0), rel=1e-6)
    assert loss(0.4, 0.25) != pytest.approx(loss(0.4, 1.0), rel=1e-4)


def test_windows_start_from_what_each_network_remembered():
    """An actor that carries 4 numbers beside a critic that carries 8: none can take what is the other's."""
    config = dataclasses.replace(
        CONFIG,
        critic="recurrent",
        costate_memory="both",
        replay=dataclasses.replace(CONFIG.replay, start="stored"),
    )
    state, other = state_of(CTRNNConfig(), config), state_of(LSTMConfig(), config)
    state = dataclasses.replace(
        state, networks=dataclasses.replace(state.networks, critic=other.networks.critic), target=other.target
    )
    of_actor, of_critic = (jax.random.normal(jax.random.key(7 + i), (WINDOWS, i * HIDDEN)) for i in (1, 2))
    windows = windows_of()
    # In the middle of an episode: where one starts, nothing is remembered.
    rows = dataclasses.replace(
        windows.rows, is_first=windows.rows.is_first.at[: CONFIG.replay.burn_in + 1].set(False)
    )
    assert_gradients_of_the_reference(
        config,
        state,
        Windows(rows, usable_steps(rows), windows.before, jnp.hstack([of_actor, of_critic])),
        of_actor,
        of_critic,
    )


A, B, COST, EFFORT, GAMMA = (
    np.array([[1.0, 0.1], [-0.2, 0.9]]),
    np.array([[0.0], [0.5]]),
    np.diag([1.0, 0.3]),
    np.array([[0.4]]),
    0.95,
)
# V(x) = −xᵀPx of the best controls u = −Kx, by SciPy: A and B times √γ make an undiscounted problem of it.
P = scipy.linalg.solve_discrete_are(np.sqrt(GAMMA) * A, np.sqrt(GAMMA) * B, COST, EFFORT)
K = GAMMA * np.linalg.solve(EFFORT + GAMMA * B.T @ P @ B, B.T @ P @ A)


class RegulatorsCritic(RecurrentCritic):
    """Q(x, u) = −(xᵀ C x + uᵀ E u + γ (Ax + Bu)ᵀ P (Ax + Bu)), where h = tanh tanh x says what x is."""

    def values(self, hidden, action):
        x = jnp.arctanh(jnp.arctanh(hidden))
        after = x @ A.T + action @ B.T
        value = -(
            ((x @ COST) * x).sum(-1)
            + ((action @ EFFORT) * action).sum(-1)
            + GAMMA * ((after @ P) * after).sum(-1)
        )
        return value + 1.0, value


def test_the_costate_of_a_known_value_is_found_where_the_critic_sees():
    """∂V/∂ỹ = −2Px / (1 − ỹ²) with ỹ = tanh x, in float64.

    For the best controls by the envelope theorem, and for another control by the slope of Q.
    """
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x = rng.uniform(-1.0, 1.0, (ROWS, WINDOWS, 2))
        stretch = 1.0 / (1.0 - np.tanh(x) ** 2)
        critic = RegulatorsCritic(
            Encoder(jnp.eye(4, 2), jnp.zeros(2)), Memoryless(jnp.eye(2), jnp.zeros(2)), ()
        )
        flags = jnp.zeros((ROWS, WINDOWS), bool)
        # A variance of 1 − ε, which the normaliser makes 1.
        stats = RunningStats(jnp.zeros(2), jnp.full(2, 1.0 - 1e-8), jnp.ones(()))
        memory = read_window(
            critic,
            sac_inputs(stats, None, jnp.asarray(x), ~flags, jnp.zeros((ROWS, WINDOWS, 1)), flags),
            flags,
            0,
        )
        _, slopes, by_action = q_and_gradients(critic, memory.hiddens, jnp.asarray(-x @ K.T))
        np.testing.assert_allclose(by_action, 0.0, atol=1e-9)
        np.testing.assert_allclose(
            targets_from_slopes(critic.core, memory, slopes), -2.0 * x @ P * stretch, rtol=1e-7, atol=1e-9
        )

        # And the loss, of an actor that always does tanh 0.3 and is blind at every other step.
        actor = build_actor(PolicyConfig(2, CTRNNConfig()), jax.random.key(0), 2, 1)
        actor = double(
            eqx.tree_at(
                lambda a: (a.readout.weights, a.readout.bias), actor, (jnp.zeros((2, 1)), jnp.full(1, 0.3))
            )
        )
        seen = jnp.broadcast_to((np.arange(ROWS) % 2 == 0)[:, None], flags.shape)
        shown = jnp.asarray(x * seen[..., None])
        nothing = jnp.zeros((ROWS, WINDOWS))
        windows = Windows(
            ReplayRows(shown, nothing[..., None], nothing, nothing, flags, flags, seen, None, jnp.asarray(x)),
            ~flags,
            jnp.zeros((WINDOWS, 1)),
            None,
        )
        config = dataclasses.replace(CONFIG, replay=dataclasses.replace(CONFIG.replay, burn_in=0))
        networks = Networks(actor, critic, jnp.zeros(()))
        weight = jnp.full((ROWS, WINDOWS), 1.0 / (ROWS * WINDOWS))
        _, found = jax.jit(
            lambda n: sac_loss(n, config, None, critic, stats, windows, weight, nothing[..., None])
        )(networks)
        u = np.full((ROWS, WINDOWS, 1), np.tanh(0.3))
        costate = -2.0 * (x @ COST + GAMMA * (x @ A.T + u @ B.T) @ P @ A) * stretch
        inputs = sac_inputs(stats, None, shown, seen, jnp.zeros((ROWS, WINDOWS, 1)), flags)
        hidden = np.stack(step_by_step(actor, inputs, flags, jnp.zeros((WINDOWS, 2)))[1])
        cosines = (
            (hidden * costate).sum(-1) / np.linalg.norm(hidden, axis=-1) / np.linalg.norm(costate, axis=-1)
        )
        # The loss has ε = 1e-8 under the roots.
        assert float(found["losses/costate"]) == pytest.approx(np.mean(1.0 - cosines), abs=1e-5)


def test_rewards_in_the_burn_in_and_of_rows_that_do_not_count_change_nothing():
    state, windows = state_of(), windows_of(1)
    weight = loss_weights(windows.usable, CONFIG.replay.burn_in)
    assert weight.sum() == pytest.approx(1.0)
    unused = jnp.concatenate([jnp.ones((CONFIG.replay.burn_in, WINDOWS), bool), weight == 0.0])
    assert unused[CONFIG.replay.burn_in :].any()
    rows = windows.rows
    other = windows._replace(
        rows=dataclasses.replace(
            rows, reward=jnp.where(unused, 100.0, rows.reward), discount=jnp.where(unused, 0.5, rows.discount)
        )
    )
    noise = jax.random.normal(jax.random.key(3), (*weight.shape, CONTROLS))
    gradient = jax.jit(
        jax.grad(
            lambda n, w: sac_loss(n, CONFIG, CLIP, state.target, state.observation_stats, w, weight, noise)[0]
        )
    )
    jax.tree.map(
        np.testing.assert_array_equal, gradient(state.networks, windows), gradient(state.networks, other)
    )


def replay_of(steps: int = 40, streams: int = 2) -> Replay:
    return append(empty_replay(steps, streams, OBSERVED, CONTROLS), rows_of(steps, streams, 5))


@pytest.mark.parametrize(("bias", "direction"), [(-3.0, 1), (0.4, -1)])
def test_too_little_entropy_raises_the_temperature_and_too_much_lowers_it(bias, direction):
    # −2.5 a component lies between log σ ≈ −5, a narrow policy, and log σ ≈ −0.2, which fills (−1, 1) almost
    # evenly: nearly log 2, the most there is.
    state = state_of()
    spread = dataclasses.replace(
        state.networks.actor.spread, bias=jnp.full(CONTROLS, bias), weights=jnp.zeros((HIDDEN, CONTROLS))
    )
    readout = dataclasses.replace(
        state.networks.actor.readout, weights=jnp.zeros((HIDDEN, CONTROLS)), bias=jnp.zeros(CONTROLS)
    )
    actor = dataclasses.replace(state.networks.actor, spread=spread, readout=readout)
    state = dataclasses.replace(state, networks=dataclasses.replace(state.networks, actor=actor))
    config = dataclasses.replace(CONFIG, target_entropy=-2.5)
    after, _ = jax.jit(lambda s, r: sac_update(config, CLIP, s, r, jax.random.key(0)))(state, replay_of())
    assert np.sign(after.networks.log_temperature - state.networks.log_temperature) == direction


def test_the_target_critic_follows_slowly_and_everything_else_moves():
    state = state_of()
    after, metrics = jax.jit(lambda s, r: sac_update(CONFIG, CLIP, s, r, jax.random.key(0)))(
        state, replay_of()
    )
    lagged = jax.tree.map(lambda old, new: 0.95 * old + 0.05 * new, state.target, after.networks.critic)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7), after.target, lagged)
    # Adam moves every weight that has a gradient by the learning rate in its first step.
    moved = jax.tree.map(lambda a, b: float(jnp.abs(a - b).max()), state.networks, after.networks)
    unused = moved.actor.readout.log_std
    assert unused == 0.0, "the width of exploration comes from the memory"
    assert all(step == pytest.approx(1e-3, rel=0.05) for step in jax.tree.leaves(moved) if step > 0.0)
    assert sum(step == 0.0 for step in jax.tree.leaves(moved)) == 1
    assert all(np.isfinite(value) for value in metrics.values())


def test_dark_observations_stay_dark_and_say_so():
    stats = state_of().observation_stats
    observation = jnp.array([[1.6, -0.2, 0.3], [0.0, 0.0, 0.0]])
    before = jnp.array([[0.5, -0.5], [0.25, 1.0]])
    inputs = sac_inputs(stats, CLIP, observation, jnp.array([True, False]), before, jnp.array([True, False]))
    np.testing.assert_allclose(inputs[0], [1.5 / np.sqrt(1.5), 0.0, 0.0, 1.0, 0.0, 0.0], atol=1e-6)
    np.testing.assert_allclose(inputs[1], [0.0, 0.0, 0.0, 0.0, 0.25, 1.0])


def test_windows_are_drawn_from_the_replay():
    replay = replay_of()
    assert sample(replay, jax.random.key(0), ROWS, WINDOWS).rows.reward.shape == (ROWS, WINDOWS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps_per_update": 0}, "steps_per_update is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"target_rate": 0.0}, "target_rate is 0.0"),
        ({"costate_coef": -1.0}, "costate_coef is -1.0"),
        ({"explorers": -1}, "explorers is -1"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        SACConfig(**settings)
