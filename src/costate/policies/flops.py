"""Floating-point operations in the matrix products of a policy: the fewest that the mathematics allows."""

from costate._base.errors import ConfigError
from costate.policies.cores import CORES
from costate.policies.cores.base import CoreFlops
from costate.policies.policy import PolicyConfig


def core_flops(policy: PolicyConfig) -> CoreFlops:
    """Return the operations of one step of the core, for all members of an ensemble together."""
    if policy.features != policy.hidden_size:
        raise ConfigError(
            f"The matrix products are counted for features as wide as the hidden state, but feature_size is "
            f"{policy.feature_size}."
        )
    one = policy.core.flops(policy.hidden_size)
    if one is None:
        raise ConfigError(
            f"The matrix products of the core {CORES.name_of(type(policy.core))} are not known. Define the "
            "method `flops` of its config to benchmark it."
        )
    return CoreFlops(policy.ensemble * one.forward, policy.ensemble * one.target)


def readout_flops(policy: PolicyConfig, action_size: int) -> float:
    """Return the operations of the readout, with those of an influence that depends on the observation."""
    width = policy.hidden_size
    observed = getattr(policy.readout, "influence", "constant") == "observed"
    return 2.0 * width * action_size + (2.0 * width**2 if observed else 0.0)
