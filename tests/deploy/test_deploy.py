"""Test policies outside of training: the object, the bundle, and NumPy, ONNX and StableHLO exports."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from deployed import LAYOUT, random_bundle

import costate
from costate._base.errors import BundleError, CostateError, ExportError, MisuseError
from costate.deploy import numpy_runtime
from costate.deploy.bundle import Bundle, network_of, pack, unpack
from costate.deploy.onnx_graph import onnx_model
from costate.deploy.parity import check_parity, compare, random_observations
from costate.deploy.policy import Policy
from costate.deploy.runners import bundle_step, numpy_step, onnx_step, stablehlo_step
from costate.deploy.stablehlo import stablehlo_program
from costate.policies.cores import CORES
from costate.policies.policy import PolicyConfig
from costate.policies.readouts import READOUTS, ReadoutConfig

SMALL = PolicyConfig(hidden_size=7)


def observed(name: str) -> ReadoutConfig:
    """Return a readout whose influence depends on the observation, if it has that setting."""
    config = READOUTS[name]
    return (
        config(influence="observed")
        if "influence" in {field.name for field in dataclasses.fields(config)}
        else config()
    )


PARTS = {
    **{name: {"policy": PolicyConfig(hidden_size=7, core=CORES[name]())} for name in CORES.names()},
    "even costate-cell": {"policy": PolicyConfig(hidden_size=6, core=CORES["costate-cell"]())},
    **{
        f"readout {name}": {"policy": PolicyConfig(hidden_size=6, readout=observed(name))}
        for name in READOUTS.names()
    },
    "ensemble": {"policy": PolicyConfig(hidden_size=5, feature_size=8, ensemble=3, core=CORES["lstm"]())},
    "mask": {"policy": SMALL, "mask_input": "bits"},
    "no clip": {"policy": SMALL, "observation_clip": None},
    "sac": {
        "policy": PolicyConfig(hidden_size=6, core=CORES["cornn"]()),
        "algorithm": "sac",
        "mask_input": "bit",
    },
    "sac without bounds": {
        "policy": SMALL,
        "algorithm": "sac",
        "action": {"low": [-1e10, -2.0], "high": [1e10, 1.0]},
    },
}


@pytest.fixture(scope="module")
def bundle() -> Bundle:
    return random_bundle(SMALL)


@pytest.fixture(scope="module")
def policy(bundle) -> Policy:
    return Policy(bundle)


def doubled(network):
    return jax.tree.map(lambda leaf: jnp.asarray(np.asarray(leaf, np.float64)), network)


@pytest.mark.parametrize("name", PARTS)
def test_numpy_computes_what_jax_computes(name):
    """Compare in float64, where only rounding is left.

    A wrong sign or a forgotten array is obvious, and 1e-12 allows for sums in another order.
    """
    bundle, rng = random_bundle(**PARTS[name]), np.random.default_rng(1)
    runtime = numpy_runtime.network_of(bundle.description, bundle.tensors, np.float64)
    with jax.enable_x64(True):
        network = doubled(network_of(bundle))
        assert network.state_size == runtime.state_size
        mine = theirs = np.zeros((4, runtime.state_size))
        step = jax.jit(network.__call__)
        for t in range(6):
            observation, first = random_observations(bundle, rng).astype(np.float64), rng.random(4) < 0.2
            expected = step(jnp.asarray(observation), jnp.asarray(mine), jnp.asarray(first))
            found = runtime.step(observation, theirs, first if t else None)
            if t == 0:
                expected = step(jnp.asarray(observation), jnp.asarray(mine), jnp.zeros(4, bool))
            for left, right in zip(found, expected, strict=True):
                assert (left is None) == (right is None)
                if left is not None:
                    np.testing.assert_allclose(left, np.asarray(right), rtol=1e-11, atol=1e-12)
            mine, theirs = np.asarray(expected.state), found.state


def test_every_registered_part_has_a_form_in_numpy():
    assert set(CORES.names()) == set(numpy_runtime.CORES)
    assert set(READOUTS.names()) == set(numpy_runtime.READOUTS)


@pytest.mark.parametrize(
    "name", ["gru", "ssm", "costate-cell", "frame-stack", "readout bang-off-bang", "ensemble", "sac"]
)
def test_onnx_runtime_computes_what_jax_computes(name):
    bundle = random_bundle(**PARTS[name])
    parity = check_parity(Policy(bundle), onnx_step(onnx_model(bundle)), "onnx")
    assert parity.steps == 1000
    assert parity.resets > 20


@pytest.mark.parametrize("name", ["ensemble", "sac"])
def test_the_other_formats_pass_the_parity_check(name):
    bundle = random_bundle(**PARTS[name])
    policy, content = Policy(bundle), pack(bundle)
    # Fewer steps than in an export: types are checked in every call while tests run, which makes them slow.
    check_parity(policy, numpy_step(content), "numpy", steps=100)
    check_parity(
        policy,
        stablehlo_step(stablehlo_program(policy.function, bundle.sizes.observation)),
        "stablehlo",
        steps=100,
    )
    check_parity(policy, bundle_step(content), "bundle", steps=20)


def test_a_policy_that_acts_differently_fails_the_parity_check(policy, bundle):
    wrong = bundle.tensors | {"readout.bias": bundle.tensors["readout.bias"] + np.float32(3e-5)}
    with pytest.raises(ExportError, match=r"nothing was written.*1e-05 is allowed"):
        check_parity(policy, numpy_step(pack(dataclasses.replace(bundle, tensors=wrong))), "numpy", steps=20)

    def silent(observation, state, is_first):
        return np.full((4, 2), np.nan), state

    assert not compare(policy, silent, steps=3).holds


# The policy object.


def test_held_and_explicit_memory_agree_for_one_stream_and_for_many(policy):
    rng = np.random.default_rng(0)
    observations, first = rng.standard_normal((5, 3, 5)), rng.random((5, 3)) < 0.3
    policy.reset(3)
    state = None
    for observation, start in zip(observations, first, strict=True):
        action = policy.step(observation, start)
        expected, state = policy.predict(observation, state, start)
        np.testing.assert_array_equal(action, expected)
        np.testing.assert_array_equal(policy.state, state)
    assert action.shape == (3, 2)
    assert policy.hidden.shape == (3, 7)
    assert policy.value.shape == (3,)
    assert policy.costate.shape == (3, 7)
    policy.reset()
    alone = policy.step(observations[0, 0])
    assert alone.shape == (2,)
    assert policy.hidden.shape == (7,)
    np.testing.assert_allclose(alone, policy.predict(observations[0])[0][0], rtol=1e-6)
    assert np.all((policy.action_low <= alone) & (alone <= policy.action_high))


def test_names_can_be_given_instead_of_places(policy):
    flat = np.arange(5.0)
    named = {"velocity": flat[3:], "position": flat[:3]}
    np.testing.assert_array_equal(policy.predict(named)[0], policy.predict(flat)[0])
    batch = {name: np.stack([value, value]) for name, value in named.items()}
    assert policy.predict(batch)[0].shape == (2, 2)
    assert policy.observation_layout == LAYOUT
    with pytest.raises(MisuseError, match=r"reads position, velocity"):
        policy.step({"position": flat[:3]})


def test_the_costate_is_the_slope_of_the_value_by_the_encoded_observation(policy, bundle):
    """Compare with a finite difference by the encoder's bias, in float64."""
    observation = np.asarray([0.3, -0.2, 0.5, 1.0, -1.0])
    policy.reset()
    policy.step(np.ones(5))
    state = policy.state
    policy.step(observation)
    network = numpy_runtime.network_of(bundle.description, bundle.tensors, np.float64)
    inputs = np.clip((observation - network.mean) / network.deviation, -5.0, 5.0)
    feature = np.tanh(inputs @ network.encoder + network.encoder_bias)

    def value(feature):
        return float((network.core.step(feature[None], state.astype(float)) @ network.slope)[0])

    slopes = [(value(feature + step) - value(feature - step)) / 2e-5 for step in 1e-5 * np.eye(7)]
    np.testing.assert_allclose(
        policy.costate, slopes, rtol=1e-4, atol=1e-5
    )  # float32 against differences of float64


def test_it_is_a_pure_function_inside_compiled_programs(policy):
    observations = np.random.default_rng(0).standard_normal((4, 2, 5)).astype(np.float32)

    @jax.jit
    def unroll(observations):
        def advance(state, observation):
            decision = policy.function(observation, state, jnp.zeros(2, bool))
            return decision.state, decision.action

        return jax.lax.scan(advance, jnp.zeros((2, policy.state_size)), observations)[1]

    policy.reset(2)
    np.testing.assert_allclose(
        unroll(observations), [policy.step(row) for row in observations], rtol=1e-5, atol=1e-6
    )


def test_it_drives_a_gymnasium_environment(policy):
    import gymnasium

    class World(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (5,), np.float64)
        action_space = gymnasium.spaces.Box(
            np.asarray([-1.0, -0.5], np.float32), np.asarray([1.0, 2.0], np.float32)
        )

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.steps = 0
            return np.zeros(5), {}

        def step(self, action):
            assert self.action_space.contains(action)
            self.steps += 1
            return self.np_random.standard_normal(5), 0.0, False, self.steps == 3, {}

    env = World()
    for _ in range(2):
        observation, _ = env.reset(seed=0)
        policy.reset()
        truncated = False
        while not truncated:
            observation, _, _, truncated, _ = env.step(policy.step(observation))


def test_nested_dictionaries_are_read_as_gymnasium_gives_them_and_in_its_order(tmp_path):
    """Observations of one environment and of a vector of them.

    They include a scalar, names that are not text, empty groups and nested dictionaries.
    """
    import gymnasium
    from gymnasium.spaces import Box, Dict

    from costate.envs.engines.gymnasium import flat_observation, observation_layout

    class World(gymnasium.Env):
        # Gymnasium sorts the names of a plain dictionary: "arm" comes first.
        observation_space = Dict(
            {
                "tip": Box(-9, 9, (2,)),
                "arm": Dict({7: Box(-9, 9, ()), 3: Dict({"b": Box(-9, 9, (2,), np.float64)})}),
                "no": Box(0, 1, (0,)),
            }
        )
        action_space = Box(np.asarray([-1.0, -0.5], np.float32), np.asarray([1.0, 2.0], np.float32))

        def reset(self, *, seed=None, options=None):
            return {
                "tip": np.ones(2, np.float32),
                "arm": {7: np.float32(-1.0), 3: {"b": np.full(2, 0.5)}},
                "no": np.zeros(0, np.float32),
            }, {}

        def step(self, action):
            return self.reset()[0], 0.0, False, False, {}

    layout = observation_layout("World", World.observation_space)
    assert layout == (("arm/3/b", 2), ("arm/7", 1), ("no", 0), ("tip", 2))
    bundle = unpack(pack(random_bundle(SMALL, observation=[list(group) for group in layout])))
    (tmp_path / "p.costate").write_bytes(pack(bundle))
    for agent in (Policy(bundle), numpy_runtime.Policy(tmp_path / "p.costate")):
        expected = agent.predict([0.5, 0.5, -1.0, 1.0, 1.0])[0]
        observation, _ = World().reset()
        np.testing.assert_array_equal(agent.predict(observation)[0], expected)
        for count in (1, 2):
            vector = gymnasium.vector.SyncVectorEnv([World] * count)
            observations, _ = vector.reset()
            actions = agent.step(observations)
            assert actions.shape == (count, 2)
            np.testing.assert_allclose(
                actions, [expected] * count, rtol=1e-5, atol=1e-6
            )  # another batch sums in another order
            np.testing.assert_array_equal(
                agent.predict(flat_observation(observations, World.observation_space))[0], actions
            )
            vector.step(actions)
            agent.reset(count + 1)


def test_an_observation_that_is_one_number_is_read_as_one(tmp_path):
    bundle = random_bundle(SMALL)
    tensors = bundle.tensors | {
        name: bundle.tensors[name][:1]
        for name in ("normaliser.mean", "normaliser.variance", "encoder.weights")
    }
    one = dataclasses.replace(
        bundle, tensors=tensors, description=bundle.description | {"observation": [["observation", 1]]}
    )
    assert Policy(one).step(np.float32(0.3)).shape == (2,)


@pytest.mark.parametrize("form", ["jax", "numpy"])
def test_misuse_says_what_to_do(policy, bundle, form, tmp_path):
    (tmp_path / "p.costate").write_bytes(pack(bundle))
    agent = Policy(bundle) if form == "jax" else numpy_runtime.Policy(tmp_path / "p.costate")
    error = MisuseError if form == "jax" else numpy_runtime.MisuseError
    with pytest.raises(error, match=r"No step was taken yet"):
        _ = agent.hidden
    with pytest.raises(
        error, match=r"shape \[4\], but this policy reads 5 numbers: position \(3\), velocity \(2\)"
    ):
        agent.step(np.zeros(4))
    with pytest.raises(error, match=r"contains NaN or Inf.*Give 0"):
        agent.step(np.asarray([0.0, np.nan, 0.0, 0.0, 0.0]))
    with pytest.raises(error, match=r"dtype <U"):
        agent.step(["a"] * 5)
    agent.step(np.zeros((2, 5)))
    with pytest.raises(
        error, match=r"3 observations were given, but the policy has the memory of 2 streams. Call reset\(3\)"
    ):
        agent.step(np.zeros((3, 5)))
    with pytest.raises(error, match=r"state has shape \[2, 3\], but 2 streams need \[2, 7\]"):
        agent.predict(np.zeros((2, 5)), np.zeros((2, 3)))
    with pytest.raises(error, match=r"is_first is float64\[2\]"):
        agent.step(np.zeros((2, 5)), np.zeros(2))
    with pytest.raises(error, match=r"policy reads no mask"):
        agent.step(np.zeros((2, 5)), seen=False)
    with pytest.raises(error, match=r"batch is 0"):
        agent.reset(0)


class Unwilling:
    """An object that cannot be converted."""

    def __array__(self, *_, **__):
        raise RuntimeError("not now")


@pytest.mark.parametrize("form", ["jax", "numpy"])
def test_what_is_no_number_is_refused_with_a_reason(bundle, form, tmp_path):
    (tmp_path / "p.costate").write_bytes(pack(bundle))
    agent = Policy(bundle) if form == "jax" else numpy_runtime.Policy(tmp_path / "p.costate")
    error = MisuseError if form == "jax" else numpy_runtime.MisuseError
    wrong = {
        "text": (
            "look",
            "The observation has dtype <U4, such as 'look', but numbers are needed",
        ),
        # NumPy would convert these to numbers on request.
        "numbers in words": (["1", "2", "3", "4", "5"], "The observation has dtype <U1"),
        "bytes": (b"12345", r"The observation has dtype \|S5"),
        "nothing": (None, "The observation has dtype object, such as None"),
        "a ragged list": (
            [[0.0] * 5, [0.0] * 4],
            "The observation cannot be converted to an array of numbers",
        ),
        "an object": (object(), "The observation has dtype object"),
        "an unwilling object": (
            Unwilling(),
            r"The observation cannot be converted to an array of numbers \('not now'\)",
        ),
        "complex numbers": ([1j] * 5, "The observation has dtype complex128"),
        "a number of 400 digits": ([10**400] * 5, "The observation has dtype object"),
        "more than float32 holds": ([1e39, 0.0, 0.0, 0.0, 0.0], "The observation contains NaN or Inf"),
        "text among groups": (
            {"position": "abc", "velocity": [0.0, 0.0]},
            "position has dtype <U3",
        ),
        "numbers in words among groups": (
            {"position": ["1", "2", "3"], "velocity": [0.0, 0.0]},
            "position has dtype <U1",
        ),
        "a ragged group": (
            {"position": [[1.0], [1.0, 2.0]], "velocity": [0.0, 0.0]},
            "position cannot be converted to an array of numbers",
        ),
    }
    for given, message in wrong.values():
        for call in (agent.step, agent.predict):
            with pytest.raises(error, match=message):
                call(given)
    sensible = np.zeros(5)
    for state in ("memory", ["a"] * agent.state_size, [[0.0], [0.0, 1.0]], Unwilling()):
        with pytest.raises(error, match=r"The state (has dtype|cannot be converted)"):
            agent.predict(sensible, state)
    with pytest.raises(error, match=r"The state contains NaN or Inf.*Give None"):
        agent.predict(sensible, np.full(agent.state_size, np.nan))
    for first in ("yes", [[True], [True, False]]):
        with pytest.raises(error, match=r"is_first (has dtype|cannot be converted)"):
            agent.step(sensible, first)
    for batch in ("two", 1.5, None, -1, True):
        with pytest.raises(error, match=r"batch is .* at least one stream is needed"):
            agent.reset(batch)
    assert agent.step(sensible).shape == (2,)


@pytest.mark.parametrize("form", ["jax", "numpy"])
def test_whether_something_was_seen_is_not_told_in_words(form, tmp_path):
    masked = random_bundle(SMALL, mask_input="bit")
    (tmp_path / "p.costate").write_bytes(pack(masked))
    agent = Policy(masked) if form == "jax" else numpy_runtime.Policy(tmp_path / "p.costate")
    error = MisuseError if form == "jax" else numpy_runtime.MisuseError
    for seen in ("no", [["a"], ["b", "c"]]):
        with pytest.raises(error, match=r"`seen` (has dtype|cannot be converted)"):
            agent.step(np.zeros(5), seen=seen)


@pytest.mark.parametrize("kind", ["bit", "bits"])
def test_a_policy_with_a_mask_is_told_what_was_seen(kind):
    policy, reading = Policy(random_bundle(SMALL, mask_input=kind)), np.arange(1.0, 6.0)
    mask = np.ones(1) if kind == "bit" else np.ones(5)
    everything = policy.predict(np.concatenate([reading, mask]))[0]
    np.testing.assert_array_equal(policy.predict(reading)[0], everything)
    np.testing.assert_array_equal(policy.predict(reading, seen=True)[0], everything)
    nothing = policy.predict(np.zeros(5), seen=False)[0]
    np.testing.assert_array_equal(nothing, policy.predict(np.zeros(5 + len(mask)))[0])
    # Another batch is another program, which sums in another order.
    np.testing.assert_allclose(
        policy.predict(np.zeros((2, 5)), seen=np.zeros((2, 1), bool))[0][1], nothing, rtol=1e-5, atol=1e-6
    )
    each = np.asarray([True, False, True, True, False])
    told = each if kind == "bits" else [True]
    np.testing.assert_array_equal(
        policy.predict(reading, seen=each)[0], policy.predict(np.concatenate([reading, told]))[0]
    )


def test_soft_actor_critic_has_no_value_and_says_why():
    policy = Policy(random_bundle(SMALL, algorithm="sac"))
    policy.step(np.ones(5))
    assert policy.hidden.shape == (7,)
    for name in ("value", "costate"):
        with pytest.raises(MisuseError, match="used only in training"):
            getattr(policy, name)


# The bundle.


def test_a_bundle_is_read_back_as_it_was_and_is_plain_safetensors(bundle):
    content = pack(bundle)
    again = unpack(content)
    assert again.description == bundle.description
    tensors = safetensors.numpy.load(content)
    assert again.tensors.keys() == bundle.tensors.keys() == tensors.keys()
    for name, tensor in bundle.tensors.items():
        np.testing.assert_array_equal(again.tensors[name], tensor)
        np.testing.assert_array_equal(tensors[name], tensor)
    assert pack(again) == content


def repacked(bundle: Bundle, **changes) -> bytes:
    return pack(dataclasses.replace(bundle, description=bundle.description | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"version": 2},
            "has format version 2, but this reader supports version 1. Use the costate that wrote it, or a "
            "newer one",
        ),
        ({"format": "else"}, "its format is missing"),
        ({"algorithm": "dqn"}, "algorithm is 'dqn'"),
        ({"extra": 1}, "the list of settings"),
        ({"observation": [["position", 10**9]]}, "observation is"),
        ({"observation": [["position", 3], ["position", 2]]}, "with a name twice"),
        ({"observation": [["position", 4]]}, "implies"),
        ({"action": {"low": [1.0, 1.0], "high": [0.0, 0.0]}}, "action is"),
        ({"observation_clip": -1.0}, "observation_clip is -1.0"),
        ({"observation_clip": True}, "observation_clip is True"),
    ],
)
def test_a_description_that_cannot_be_true_is_refused(bundle, changes, message):
    with pytest.raises(BundleError, match=message):
        unpack(repacked(bundle, **changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": 8}, "implies"),
        ({"hidden_size": 10**9}, "policy is"),
        ({"ensemble": 2}, "in only one of them"),
        ({"core": {"name": "../../etc/passwd"}}, "Unknown core"),
        ({"core": {"name": "frame-stack", "frames": 10**9}}, "core is"),
        (
            {"core": {"name": "frame-stack", "frames": 60000, "initialisation": "orthogonal"}},
            "in only one of them",
        ),
        ({"core": {"name": "lstm"}}, "implies"),
        ({"core": {"name": "gru", "initialisation": "evil"}}, "cannot be used with this version"),
        ({"readout": {"name": "quadratic", "influence": "observed"}}, "in only one of them"),
    ],
)
def test_an_architecture_that_does_not_fit_is_refused(bundle, changes, message):
    with pytest.raises(CostateError, match=message):
        Policy(unpack(repacked(bundle, policy=bundle.description["policy"] | changes)))


def test_settings_that_are_missing_or_no_numbers_are_refused_by_the_runtime_too():
    bundle = random_bundle(PolicyConfig(hidden_size=4, core=CORES["lstm"]()))
    for settings in ({"name": "lstm"}, {"name": "lstm", "forget_bias": "much"}):
        description = bundle.description | {"policy": bundle.description["policy"] | {"core": settings}}
        with pytest.raises(numpy_runtime.BundleError, match="settings of the core lstm"):
            numpy_runtime.network_of(description, bundle.tensors)


def resealed(content: bytes, change) -> bytes:
    """Return a bundle whose header was changed and whose digest was recomputed."""
    import hashlib
    import struct

    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header["__metadata__"]["sha256"] = numpy_runtime.NO_DIGEST
    data = change(header, content[8 + length :])
    text = json.dumps(header, separators=(",", ":")).encode()
    whole = struct.pack("<Q", len(text)) + text + data
    return whole.replace(numpy_runtime.NO_DIGEST.encode(), hashlib.sha256(whole).hexdigest().encode())


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("dtype", "F64", "F64"),
        ("dtype", "PICKLE", "PICKLE"),
        ("shape", [2**40], "shape"),
        ("shape", [-1], "shape"),
        ("shape", [65536, 65536, 65536], "do not fit its shape"),
        ("shape", "x", "shape"),
        ("data_offsets", [0, 2**62], "offsets of 'core.bias' are invalid"),
        ("data_offsets", [-4, 4], "offsets of 'core.bias' are invalid"),
        ("data_offsets", [0.0, 4.0], "offsets of 'core.bias' are invalid"),
        ("data_offsets", [4, 32], "do not fit its shape"),
    ],
)
def test_a_hostile_table_is_refused_before_anything_is_allocated(bundle, key, value, message):
    def change(header, data):
        header["core.bias"][key] = value
        return data

    with pytest.raises(BundleError, match=message):
        unpack(resealed(pack(bundle), change))


def test_other_tricks_are_refused(bundle, tmp_path):
    content = pack(bundle)
    with pytest.raises(BundleError, match="belong to no array"):
        unpack(resealed(content, lambda header, data: data + b"code"))
    with pytest.raises(BundleError, match="contains NaN or Inf"):
        unpack(resealed(content, lambda header, data: np.full(len(data) // 4, np.inf, "<f4").tobytes()))
    with pytest.raises(BundleError, match=r"in only one of them: \.\./evil"):
        unpack(
            pack(dataclasses.replace(bundle, tensors=bundle.tensors | {"../evil": np.zeros(1, np.float32)}))
        )
    with pytest.raises(BundleError, match="header would have"):
        unpack((2**63).to_bytes(8, "little") + content[8:])
    with pytest.raises(BundleError, match="not the JSON"):
        unpack((200_000).to_bytes(8, "little") + b"[" * 200_000)
    with pytest.raises(BundleError, match="is not a file"):
        numpy_or_costate(tmp_path)
    with pytest.raises(BundleError, match="There is no"):
        costate.load(tmp_path / "nothing.costate")
    (tmp_path / "sparse").touch()
    import os

    os.truncate(tmp_path / "sparse", 2**40)
    with pytest.raises(BundleError, match="at most"):
        costate.load(tmp_path / "sparse")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BundleError, match="is not a file"):
        costate.load(tmp_path / "pipe")


def numpy_or_costate(path):
    from costate.deploy.bundle import read

    return read(path)


def test_a_mutated_bundle_is_always_refused(bundle):
    """The digest covers every byte: flipped bits, truncation, overwritten ranges and edited headers."""
    content, rng = pack(bundle), np.random.default_rng(0)
    header = 8 + int.from_bytes(content[:8], "little")
    for number in range(520):
        mutated = bytearray(content)
        # Half of them in the header, which is the smaller part and is read first.
        place = int(rng.integers(header if number % 2 else len(content)))
        match number % 4:
            case 0 | 1:
                mutated[place] ^= 1 << int(rng.integers(8))
            case 2:
                del mutated[place:]
            case 3:
                stretch = rng.integers(0, 256, int(rng.integers(1, 40)), np.uint8).tobytes()
                mutated[place : place + len(stretch)] = stretch
        if bytes(mutated) == content:
            continue
        with pytest.raises(BundleError):
            unpack(bytes(mutated))


def test_a_resealed_bundle_is_refused_or_means_what_it_says(bundle):
    """Headers are checked even under a valid digest.

    Values of the header are replaced by others of all kinds.
    """
    content, rng = pack(bundle), np.random.default_rng(0)
    values = [
        None,
        True,
        -1,
        0,
        1,
        2**70,
        1e308,
        "",
        "x",
        "../x",
        [],
        [1],
        {},
        {"name": "gru"},
        [["a", 1]],
        [10**6] * 3,
    ]
    loaded = 0

    def change(header, data):
        node = (
            header if rng.random() < 0.5 else (description := json.loads(header["__metadata__"]["costate"]))
        )
        inside = node
        while True:
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            key = keys[int(rng.integers(len(keys)))]
            if (
                key == "__metadata__"
                or not isinstance(inside[key], dict | list)
                or not inside[key]
                or rng.random() < 0.3
            ):
                break
            inside = inside[key]
        if key != "__metadata__":
            inside[key] = values[int(rng.integers(len(values)))]
        if node is not header:
            header["__metadata__"]["costate"] = json.dumps(description)
        return data

    for _ in range(150):
        try:
            found = unpack(resealed(content, change))
        except BundleError:
            continue
        loaded += 1
        assert {name: tensor.shape for name, tensor in found.tensors.items()} == {
            name: tensor.shape for name, tensor in bundle.tensors.items()
        }
    assert loaded < 75


# Without this library, and without its training code.

WITHOUT_TRAINING = """
import sys, numpy as np, costate
policy = costate.load(sys.argv[1])
assert policy.step(np.zeros(5)).shape == (2,)
heavy = ["envpool", "optax", "tyro", "tensorboardX", "matplotlib", "rich", "dm_control", "mujoco", "onnx"]
rooms = "training ppo sac rollout sac_rollout replay envs algorithms config checkpoint"
heavy += [f"costate.{name}" for name in rooms.split()]
print([name for name in heavy if name in sys.modules])
"""

WITHOUT_THE_LIBRARY = """
import sys
for name in ("jax", "costate", "equinox", "safetensors"):
    sys.modules[name] = None  # importing it fails
from costate_policy import Policy
policy = Policy("policy.costate")
print(policy.step([0.0] * 5).tolist())
"""


def test_a_bundle_is_loaded_without_engine_and_training_code(bundle, tmp_path):
    (tmp_path / "policy.costate").write_bytes(pack(bundle))
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_TRAINING, str(tmp_path / "policy.costate")],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[]"


def test_the_numpy_export_runs_where_there_is_no_jax(policy, bundle, tmp_path):
    from costate.trained.exporting import export

    (tmp_path / "given.costate").write_bytes(pack(bundle))
    export(tmp_path / "given.costate", "numpy", tmp_path / "out")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "README.md",
        "costate_policy.py",
        "policy.costate",
    ]
    result = subprocess.run(
        [sys.executable, "-c", WITHOUT_THE_LIBRARY],
        capture_output=True,
        text=True,
        timeout=100,
        cwd=tmp_path / "out",
    )
    assert result.returncode == 0, result.stderr
    np.testing.assert_allclose(json.loads(result.stdout), policy.predict(np.zeros(5))[0], atol=1e-6)


def test_nothing_is_written_where_the_exported_policy_differs(bundle, tmp_path, monkeypatch):
    from costate.trained import exporting

    (tmp_path / "given.costate").write_bytes(pack(bundle))
    monkeypatch.setattr(
        exporting,
        "numpy_step",
        lambda content: lambda observation, state, is_first: (np.zeros((4, 2)), state),
    )
    with pytest.raises(ExportError, match="nothing was written"):
        exporting.export(tmp_path / "given.costate", "numpy", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(CostateError, match="Did you mean onnx"):
        exporting.export(pathlib.Path(tmp_path / "given.costate"), "onx")
