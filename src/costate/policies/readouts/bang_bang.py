"""The readout for costs of time or of the state alone: full effort in either direction (Appendix C)."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp

from costate._base.types import Array, Float, Key
from costate.control.costs import FreeControl
from costate.policies.readouts.base import READOUTS, ReadoutConfig
from costate.policies.readouts.gibbs import OFF_POLICY_OBSTACLE, AbstractSwitchingReadout
from costate.policies.readouts.influence import Influence, fresh_influence


class BangBangReadout(AbstractSwitchingReadout):
    """u* = sign(σ) u_max with σ = −G(ỹ) h, for c(u) = 0; explored by P(u) ∝ exp(uσ/τ) over ±u_max."""

    levels: ClassVar[tuple[float, ...]] = (-1.0, 1.0)

    weights: Float[Array, "H A"]
    bias: Float[Array, " A"]
    log_temperature: Float[Array, " A"]
    modulation: Float[Array, "F H"] | None = None

    @property
    def price(self) -> float:
        return 0.0

    def control(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        slope = -self.switching(feature, hidden)
        return FreeControl().minimiser(slope, jnp.ones_like(slope))


@READOUTS.register("bang-bang")
@dataclasses.dataclass(frozen=True)
class BangBangReadoutConfig(ReadoutConfig):
    """Full effort by the sign of the switching function, the control law where control costs nothing."""

    off_policy_obstacle = OFF_POLICY_OBSTACLE

    influence: Influence = "constant"
    """Influence G of controls on what the co-state measures: constant, or a function of the observation."""

    def build(self, key: Key[Array, ""], hidden_size: int, action_size: int) -> BangBangReadout:
        weights, bias, modulation = fresh_influence(key, self.influence, hidden_size, action_size)
        return BangBangReadout(weights, bias, jnp.zeros(action_size), modulation)
