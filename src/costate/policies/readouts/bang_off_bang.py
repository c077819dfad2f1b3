"""The readout for a cost of fuel: full effort in either direction, and none where it is not worth its fuel.

See Appendix C.
"""

import dataclasses
import math
from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp

from costate._base.errors import ConfigError
from costate._base.types import Array, Float, Key
from costate.control.costs import FuelCost
from costate.policies.readouts.base import READOUTS, ReadoutConfig
from costate.policies.readouts.gibbs import OFF_POLICY_OBSTACLE, AbstractSwitchingReadout
from costate.policies.readouts.influence import Influence, fresh_influence


class BangOffBangReadout(AbstractSwitchingReadout):
    """u* = sign(σ) u_max where |σ| > w, else 0, with σ = −G(ỹ) h, for c(u) = w Σ|u_i|.

    It is explored by P(u) ∝ exp((uσ − w|u|)/τ) over 0 and ±u_max.
    """

    levels: ClassVar[tuple[float, ...]] = (-1.0, 0.0, 1.0)

    weights: Float[Array, "H A"]
    bias: Float[Array, " A"]
    log_temperature: Float[Array, " A"]
    modulation: Float[Array, "F H"] | None = None
    fuel_weight: float = eqx.field(static=True, default=1.0)

    @property
    def price(self) -> float:
        return self.fuel_weight

    def control(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        slope = -self.switching(feature, hidden)
        return FuelCost(self.fuel_weight).minimiser(slope, jnp.ones_like(slope))


@READOUTS.register("bang-off-bang")
@dataclasses.dataclass(frozen=True)
class BangOffBangReadoutConfig(ReadoutConfig):
    """Full effort if the switching function is large, none if it is small: the law of a cost of fuel."""

    off_policy_obstacle = OFF_POLICY_OBSTACLE

    # Well below the initial temperature 1: with 1 itself, PPO finds policies that act by chance alone
    # (docs/readouts.md).
    fuel_weight: float = 0.2
    """Half-width w of the dead zone |σ| < w: the weight of fuel in the cost w|u| that the law minimises.

    The task's reward does not change with it.
    """
    influence: Influence = "constant"
    """Influence G of controls on what the co-state measures: constant, or a function of the observation."""

    def __post_init__(self) -> None:
        if not (math.isfinite(self.fuel_weight) and self.fuel_weight > 0.0):
            raise ConfigError(
                f"fuel_weight is {self.fuel_weight}, but it must be a positive number. "
                "Where control is free use --readout bang-bang."
            )

    def build(self, key: Key[Array, ""], hidden_size: int, action_size: int) -> BangOffBangReadout:
        weights, bias, modulation = fresh_influence(key, self.influence, hidden_size, action_size)
        return BangOffBangReadout(weights, bias, jnp.zeros(action_size), modulation, self.fuel_weight)
