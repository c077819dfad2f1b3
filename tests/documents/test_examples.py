"""The examples, run as a reader would run them."""

import pathlib
import runpy
import subprocess
import sys

import pytest

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


@pytest.mark.thorough
def test_train_and_evaluate_prints_a_return_for_each_blackout_probability(tmp_path):
    command = [sys.executable, str(EXAMPLES / "train_and_evaluate.py"), str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert [line.split()[0] for line in result.stdout.splitlines()] == ["50%", "75%"]


@pytest.mark.thorough
def test_own_world_is_learnt():
    returns = runpy.run_path(str(EXAMPLES / "own_world.py"))["main"](iterations=60)
    assert returns[-1] > returns[0] + 5.0


def test_the_core_of_the_extending_guide_is_all_that_a_core_needs(tmp_path):
    """Execute the code block, then train its core and differentiate through it like through any other."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from costate.policies.cores import CORES, unroll

    guide = (EXAMPLES.parent / "docs" / "extending.md").read_text()
    code = guide.split("```python\n")[1].split("```")[0]
    file = tmp_path / "vanilla.py"
    file.write_text(code)
    before = CORES.names()
    config = runpy.run_path(str(file))["VanillaRNNConfig"]
    try:
        assert CORES.names() == (*before, "vanilla")
        core = config().build(jax.random.key(0), 4, 4)
        features, first = jax.random.normal(jax.random.key(1), (5, 2, 4)), jnp.zeros((5, 2), bool)
        # By hand, without a word of the library about sequences.
        hidden, by_hand = np.zeros((2, 4)), []
        for feature in np.asarray(features):
            rows = [core.step(jnp.asarray(f), jnp.asarray(h)) for f, h in zip(feature, hidden, strict=True)]
            hidden = np.asarray(rows)
            by_hand.append(hidden)
        unrolled = unroll(core, features, jnp.zeros((2, 4)), first)
        np.testing.assert_allclose(unrolled, by_hand, rtol=1e-5, atol=1e-6)
        gradient = jax.grad(lambda c: unroll(c, features, jnp.zeros((2, 4)), first).sum())(core)
        assert all(np.any(leaf) for leaf in jax.tree.leaves(gradient))
    finally:
        CORES._items.pop("vanilla", None)


@pytest.mark.parametrize("name", ["train_and_evaluate.py", "own_world.py"])
def test_examples_open_with_a_sentence_that_says_what_they_show(name):
    assert (EXAMPLES / name).read_text().startswith('"""')
