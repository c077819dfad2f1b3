"""The GRU's loops in C against NumPy in float64, step by step, and the fallback without a compiler."""

import os
import pathlib
import stat
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from costate.policies.cores import gru
from costate.policies.cores.native import gru_loops, library

needs_c = pytest.mark.skipif(not library.state().available, reason=str(library.state()))
# The width of one vector, widths that leave narrower panels, and that of the paper; streams that fill no
# block, one, and more than one.
SHAPES = [(5, 1, 16), (7, 3, 48), (9, 4, 128), (6, 9, 144), (1, 2, 32)]


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def example(steps: int, streams: int, size: int, scale: float = 1.0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(steps * streams + size)
    is_first = random.random((steps, streams)) < 0.2
    drives = scale * random.normal(size=(3, steps, streams, size))
    matrices = random.normal(size=(3, size, size)) / np.sqrt(size)
    asked = random.normal(size=(steps, streams, size))
    return {
        "drives": drives,
        "matrices": matrices,
        "start": random.normal(size=(streams, size)),
        "is_first": is_first,
        "asked": asked,
    }


def forwards(
    drives: np.ndarray, matrices: np.ndarray, start: np.ndarray, is_first: np.ndarray
) -> list[np.ndarray]:
    """Eq. 3.6 for every step: h after and before it, r, z and n."""
    rows, h = [], start
    for t in range(drives.shape[1]):
        before = np.where(is_first[t][:, None], 0.0, h)
        r, z = (sigmoid(drives[gate, t] + before @ matrices[gate]) for gate in (0, 1))
        n = np.tanh(drives[2, t] + (r * before) @ matrices[2])
        h = (1.0 - z) * n + z * before
        rows.append((h, before, r, z, n))
    return [np.stack(column) for column in zip(*rows, strict=True)]


def single(array: np.ndarray) -> jax.Array:
    return jnp.asarray(array, jnp.bool_ if array.dtype == bool else jnp.float32)


@needs_c
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_reading_a_sequence_is_the_equation_step_by_step(shape: tuple[int, int, int]) -> None:
    given = example(*shape)
    wanted = forwards(given["drives"], given["matrices"], given["start"], given["is_first"])
    found = jax.jit(gru_loops.read)(
        tuple(map(single, given["drives"])),
        *(single(given[name]) for name in ("matrices", "start", "is_first")),
    )
    for one, other in zip(found, wanted, strict=True):
        # float32 has 24 bits; sums of up to 144 products of size 1/√144, over nine steps that contract.
        np.testing.assert_allclose(one, other, atol=2e-6)


@needs_c
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_reverse_pass_is_the_slope_of_the_forward_pass(shape: tuple[int, int, int]) -> None:
    """Compare with finite differences of the reference in float64, by the drives and by the first state."""
    given = example(*shape)
    names = ("drives", "matrices", "start", "is_first")
    reference = forwards(*(given[name] for name in names))
    _, previous, r, z, n = map(single, reference)
    deltas, d_start = jax.jit(gru_loops.retrace)(
        previous, (r, z, n), *(single(given[name]) for name in ("asked", "matrices", "is_first"))
    )
    random, step = np.random.default_rng(1), 1e-6
    for _ in range(4):
        turns = {
            "drives": random.normal(size=given["drives"].shape),
            "start": random.normal(size=given["start"].shape),
        }

        def loss(sign: float, turns: dict[str, np.ndarray] = turns) -> float:
            moved = {
                name: given[name] + (sign * step * turns[name] if name in turns else 0.0)
                for name in names
                if name != "is_first"
            }
            return float((given["asked"] * forwards(**moved, is_first=given["is_first"])[0]).sum())

        slope = (loss(1.0) - loss(-1.0)) / (2.0 * step)
        ours = sum(
            float((np.asarray(delta, np.float64) * turn).sum())
            for delta, turn in zip(deltas, turns["drives"], strict=True)
        )
        ours += float((np.asarray(d_start, np.float64) * turns["start"]).sum())
        # float32 in the reverse pass; the sum has thousands of terms of either sign.
        assert ours == pytest.approx(slope, rel=1e-4, abs=1e-3)


@needs_c
@pytest.mark.parametrize(
    ("rows", "width", "size"),
    [((50, 41), 32, 48), ((500, 4), 128, 128), ((1, 96), 16, 16), ((97, 1), 48, 80)],
)
def test_gradients_are_sums_of_outer_products(rows: tuple[int, int], width: int, size: int) -> None:
    random = np.random.default_rng(width)
    features = random.normal(size=(*rows, width))
    previous, r, *deltas = random.normal(size=(5, *rows, size))
    found = jax.jit(gru_loops.gradients)(*map(single, (features, previous, r, *deltas)))
    remembered = (previous, previous, r * previous)
    wanted = (
        np.stack([np.einsum("tbi,tbj->ij", features, delta) for delta in deltas]),
        np.stack([np.einsum("tbi,tbj->ij", *pair) for pair in zip(remembered, deltas, strict=True)]),
        np.stack([delta.sum((0, 1)) for delta in deltas]),
    )
    for one, other in zip(found, wanted, strict=True):
        # Random sums of N terms have the size √N; each of their additions is rounded, and such errors add up
        # like a random walk.
        np.testing.assert_allclose(one, other, atol=4e-7 * np.prod(rows))


@needs_c
def test_the_gates_are_accurate_to_the_last_bits_over_all_magnitudes() -> None:
    """With an empty memory r and z are the logistic function of the drives, and n is their tanh."""
    x = np.concatenate(
        [sign * np.logspace(-30, 4, 4096 - 24) for sign in (1, -1)]
        + [np.linspace(-2.0, 2.0, 32), [0.0, -0.0], np.full(14, 0.5)]
    )
    x = x.astype(np.float32)[: 8192 // 16 * 16].reshape(-1, 1, 16)
    drives = (jnp.asarray(x),) * 3
    found = jax.jit(gru_loops.read)(
        drives, jnp.zeros((3, 16, 16)), jnp.zeros((1, 16)), jnp.ones(x.shape[:2], bool)
    )
    _, _, r, z, n = map(np.asarray, found)
    exact = x.astype(np.float64)
    with np.errstate(over="ignore"):
        # Below the smallest normal float32 the last bits may differ.
        np.testing.assert_allclose(r, sigmoid(exact), rtol=4e-7, atol=2e-38)
    np.testing.assert_array_equal(r, z)
    np.testing.assert_allclose(n, np.tanh(exact), rtol=4e-7, atol=2e-38)


@needs_c
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_not_made_one(bad: float) -> None:
    given = example(4, 2, 16)
    given["drives"][:, 1, 0, 3] = bad
    found = jax.jit(gru_loops.read)(
        tuple(map(single, given["drives"])),
        *(single(given[name]) for name in ("matrices", "start", "is_first")),
    )
    wanted = forwards(given["drives"], given["matrices"], given["start"], np.asarray(given["is_first"]))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=2e-6, equal_nan=True)


@needs_c
def test_the_core_learns_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """Return values and gradients of a core in float32.

    Sequences are long enough for all three functions, also with several cores at once.
    """
    steps, streams, size = 250, 8, 32
    cores = jax.vmap(lambda key: gru.GRUConfig().build(key, size, size))(
        jax.random.split(jax.random.key(0), 2)
    )
    features = jax.random.normal(jax.random.key(1), (steps, streams, size))
    is_first = jnp.zeros((steps, streams), bool).at[100, 2].set(True)
    start, weights = jnp.zeros((streams, size)), jax.random.normal(jax.random.key(2), (steps, streams, size))

    def loss(core: gru.GRU, features: jax.Array) -> jax.Array:
        return (weights * core.fast_read(features, start, is_first).hiddens).sum()

    gradients = jax.vmap(jax.value_and_grad(loss, argnums=(0, 1)), in_axes=(0, None))
    assert gru_loops.sums(is_first, features, weights)
    assert "costate_gru_gradients" in jax.jit(gradients).lower(cores, features).as_text()
    in_c = jax.jit(lambda *arguments: gradients(*arguments))(cores, features)
    monkeypatch.setattr(gru_loops, "serves", lambda *arrays: False)
    by_xla = jax.jit(lambda *arguments: gradients(*arguments))(cores, features)
    # Sums of 2000 rows in another order.
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-3), in_c, by_xla
    )


def test_other_types_and_widths_are_left_to_xla() -> None:
    is_first, fits = jnp.zeros((4, 2), bool), jnp.zeros((4, 2, 128))
    assert gru_loops.serves(is_first, fits) == library.state().available
    with jax.enable_x64(True):
        others = (fits.astype(jnp.float64), fits.astype(jnp.bfloat16), fits[..., :100])
    for other in others:
        assert not gru_loops.serves(is_first, fits, other)
    assert not gru_loops.serves(is_first.astype(jnp.int32), fits)


@needs_c
def test_second_derivatives_are_those_of_the_scan(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Hessian times a vector, reverse over reverse."""
    core = gru.GRUConfig().build(jax.random.key(0), 16, 16)
    features, is_first = jax.random.normal(jax.random.key(1), (500, 4, 16)), jnp.zeros((500, 4), bool)
    turn = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(2), leaf.shape), core)

    def curvature(core: gru.GRU) -> gru.GRU:
        def slope(core: gru.GRU) -> jax.Array:
            gradient = jax.grad(
                lambda core: jnp.square(core.fast_read(features, jnp.zeros((4, 16)), is_first).hiddens).mean()
            )(core)
            return sum(jax.tree.leaves(jax.tree.map(lambda g, t: (g * t).sum(), gradient, turn)))

        return jax.grad(slope)(core)

    in_c = jax.jit(lambda core: curvature(core))(core)
    monkeypatch.setattr(gru_loops, "serves", lambda *arrays: False)
    by_xla = jax.jit(lambda core: curvature(core))(core)
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-5), in_c, by_xla
    )


def says(environment: dict[str, str], folder: pathlib.Path) -> str:
    program = "from costate.policies.cores.native.library import state; print(state())"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"XDG_CACHE_HOME": str(folder)} | environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_without_a_compiler_everything_is_left_to_xla_and_it_says_why(tmp_path: pathlib.Path) -> None:
    broken = tmp_path / "brokencc"
    broken.write_text("#!/bin/sh\necho 'no licence found' >&2\nexit 3\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    assert says({"COSTATE_NATIVE": "0"}, tmp_path) == "by XLA (switched off by COSTATE_NATIVE=0)"
    assert (
        says({"CC": "nosuchcc"}, tmp_path)
        == "by XLA (no C compiler was found (cc, gcc or clang, or the one that CC names))"
    )
    assert says({"CC": str(broken)}, tmp_path) == "by XLA (it could not be built: no licence found)"
    assert says({"CC": 'cc "'}, tmp_path) == "by XLA (it could not be built: No closing quotation)"
    assert not list((tmp_path / "costate").rglob("*.so"))


@needs_c
def test_what_was_built_is_found_again_and_built_anew_where_it_is_broken(tmp_path: pathlib.Path) -> None:
    first = says({}, tmp_path)
    assert first.startswith("in C (gru-")
    (built,) = (tmp_path / "costate" / "native").iterdir()
    made = built.stat().st_mtime_ns
    assert says({}, tmp_path) == first
    assert built.stat().st_mtime_ns == made
    built.write_bytes(b"not a library")
    assert says({}, tmp_path) == first
    # In this process from a folder that is gone, and for the next one in its place again.
    assert says({}, tmp_path) == first
    assert built.stat().st_size > 1000


@needs_c
def test_a_cache_that_others_can_write_to_is_not_loaded_from(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "costate" / "native"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    assert says({}, tmp_path).startswith("in C (gru-")
    assert not list(folder.iterdir())
    assert says({"XDG_CACHE_HOME": "/proc/nowhere"}, tmp_path).startswith("in C (gru-")
