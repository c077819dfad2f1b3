"""Readouts: how the Hamiltonian is minimised. A file in this folder registers itself."""

from costate._discovery import import_all
from costate.readouts.base import READOUTS as READOUTS
from costate.readouts.base import AbstractDistribution as AbstractDistribution
from costate.readouts.base import AbstractReadout as AbstractReadout
from costate.readouts.base import ReadoutConfig as ReadoutConfig
from costate.readouts.base import over_streams as over_streams
from costate.readouts.gaussian import AbstractGaussianReadout as AbstractGaussianReadout
from costate.readouts.gaussian import Gaussian as Gaussian
from costate.readouts.gibbs import AbstractSwitchingReadout as AbstractSwitchingReadout
from costate.readouts.gibbs import Gibbs as Gibbs

import_all(__name__, __path__)
