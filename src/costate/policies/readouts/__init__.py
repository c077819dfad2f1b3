"""Readouts: how the Hamiltonian is minimised. A file in this folder registers itself."""

from costate._base.discovery import import_all, load_entry_points
from costate.policies.distribution import AbstractDistribution as AbstractDistribution
from costate.policies.readouts.base import READOUTS as READOUTS
from costate.policies.readouts.base import AbstractReadout as AbstractReadout
from costate.policies.readouts.base import ReadoutConfig as ReadoutConfig
from costate.policies.readouts.base import over_streams as over_streams
from costate.policies.readouts.gaussian import AbstractGaussianReadout as AbstractGaussianReadout
from costate.policies.readouts.gaussian import Gaussian as Gaussian
from costate.policies.readouts.gibbs import AbstractSwitchingReadout as AbstractSwitchingReadout
from costate.policies.readouts.gibbs import Gibbs as Gibbs

import_all(__name__, __path__)
load_entry_points("costate.readouts")
