"""Auxiliary losses on the memory, for every learner. A file in this folder registers itself.

The co-state loss itself is part of the learners. Its settings and mathematics are in
`policies/costate_loss.py`.
"""

from costate._base.discovery import import_all, load_entry_points
from costate.losses.base import LOSSES as LOSSES
from costate.losses.base import AbstractAuxiliaryLoss as AbstractAuxiliaryLoss
from costate.losses.base import AuxiliaryLossConfig as AuxiliaryLossConfig
from costate.losses.base import Evidence as Evidence
from costate.losses.base import WeightedLoss as WeightedLoss
from costate.losses.base import auxiliary_terms as auxiliary_terms
from costate.losses.base import build_losses as build_losses

import_all(__name__, __path__)
load_entry_points("costate.losses")
