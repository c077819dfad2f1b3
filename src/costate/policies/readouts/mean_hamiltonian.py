"""One control for several hypotheses about the co-state: the argmin of their mean Hamiltonian.

See Appendix D.
"""

import equinox as eqx

from costate._base.types import Array, Float
from costate.policies.distribution import AbstractDistribution
from costate.policies.readouts.base import AbstractReadout


class MeanHamiltonianReadout(AbstractReadout):
    """u* = argmin_u (1/m) Σ_i { c(u) + uᵀ G(ỹ) h_i } = argmin_u { c(u) + uᵀ G(ỹ) h̄ }.

    This is the law of any readout at the mean h̄ of the hypotheses.

    The mean is exact, because the Hamiltonian is linear in the co-state, whatever the cost of control.
    """

    law: AbstractReadout
    count: int = eqx.field(static=True)

    def costate(self, hidden: Float[Array, "*S H"]) -> Float[Array, "*S K"]:
        return hidden.reshape(*hidden.shape[:-1], self.count, -1).mean(-2)

    def control(self, feature: Float[Array, " F"], hidden: Float[Array, " H"]) -> Float[Array, " A"]:
        return self.law.control(feature, self.costate(hidden))

    def distribution(
        self, features: Float[Array, "*S F"], hidden: Float[Array, "*S H"]
    ) -> AbstractDistribution:
        return self.law.distribution(features, self.costate(hidden))

    def exploration(self) -> dict[str, Float[Array, ""]]:
        return self.law.exploration()
