"""Readouts: how the Hamiltonian is minimised. A file in this folder registers itself."""

from costate._discovery import import_all
from costate.readouts.base import READOUTS as READOUTS
from costate.readouts.base import AbstractReadout as AbstractReadout
from costate.readouts.base import Gaussian as Gaussian
from costate.readouts.base import ReadoutConfig as ReadoutConfig
from costate.readouts.base import distribution as distribution

import_all(__name__, __path__)
