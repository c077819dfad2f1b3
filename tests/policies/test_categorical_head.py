"""The categorical head against a projection and a softmax that are written out."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from costate._base.errors import ConfigError
from costate.policies.heads.categorical import CategoricalHeadConfig

H, A = 3, 2


def head_of(low: float, high: float, bins: int):
    return CategoricalHeadConfig(low=low, high=high, bins=bins).build(jax.random.key(0), H + A, 4)


def two_hot(backup: float, low: float, high: float, bins: int) -> np.ndarray:
    """One backup at a time, by a search for its neighbours."""
    values, found = np.linspace(low, high, bins), np.zeros(bins)
    backup = min(max(backup, low), high)
    above = int(np.searchsorted(values, backup))
    if values[above] == backup:
        found[above] = 1.0
    else:
        share = (backup - values[above - 1]) / (values[above] - values[above - 1])
        found[above - 1], found[above] = 1.0 - share, share
    return found


@pytest.mark.parametrize(
    ("low", "high", "bins"), [(-10.0, 10.0, 5), (0.0, 3.0, 4), (-1.0, 2.5, 101), (-2.0, 7.0, 2)]
)
def test_a_backup_becomes_its_two_neighbours_whose_mean_it_is(low, high, bins):
    backups = np.concatenate([np.random.default_rng(0).uniform(low - 1.0, high + 1.0, 60), [low, high]])
    found = np.asarray(head_of(low, high, bins).target(jnp.asarray(backups, jnp.float32)))
    expected = np.stack([two_hot(backup, low, high, bins) for backup in backups])
    # float32: the place in steps, up to 100, has an error of about 1e-5.
    np.testing.assert_allclose(found, expected, atol=3e-5)
    np.testing.assert_allclose(found.sum(-1), 1.0, rtol=1e-6)
    assert ((found > 0.0).sum(-1) <= 2).all()
    np.testing.assert_allclose(found @ np.linspace(low, high, bins), np.clip(backups, low, high), atol=1e-4)


def test_the_value_is_the_mean_and_the_loss_the_cross_entropy():
    head, random = head_of(-4.0, 4.0, 9), np.random.default_rng(1)
    logits, backup = random.normal(size=(6, 9)), random.uniform(-4.0, 4.0, 6)
    probabilities = scipy.special.softmax(logits, axis=-1)
    prediction = jnp.asarray(logits, jnp.float32)
    np.testing.assert_allclose(
        head.value(prediction), probabilities @ np.linspace(-4.0, 4.0, 9), rtol=1e-5, atol=1e-6
    )
    projected = np.stack([two_hot(each, -4.0, 4.0, 9) for each in backup])
    np.testing.assert_allclose(
        head.loss(prediction, head.target(jnp.asarray(backup, jnp.float32))),
        -(projected * np.log(probabilities)).sum(-1),
        rtol=1e-4,
    )


def test_a_fresh_head_predicts_the_middle_of_the_range_everywhere():
    head = head_of(-30.0, 90.0, 61)
    prediction = head.predict(jnp.ones((5, H)), jnp.linspace(-1.0, 1.0, 10).reshape(5, A))
    np.testing.assert_allclose(head.value(prediction), 30.0, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": 1.0, "high": 1.0}, r"low is 1.0 and high is 1.0, but a range .* the lower first"),
        ({"high": float("inf")}, r"high is inf, but a range of values has finite ends"),
        ({"low": float("nan")}, r"low is nan"),
        ({"bins": 1}, r"bins is 1, but a range needs at least its two ends"),
    ],
)
def test_a_range_that_is_none_is_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        CategoricalHeadConfig(**settings)
