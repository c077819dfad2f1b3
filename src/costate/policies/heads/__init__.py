"""Heads of soft actor-critic's critic: how a value is predicted and learnt.

A file in this folder registers itself.
"""

from costate._base.discovery import import_all, load_entry_points
from costate.policies.heads.base import HEADS as HEADS
from costate.policies.heads.base import AbstractHead as AbstractHead
from costate.policies.heads.base import HeadConfig as HeadConfig

import_all(__name__, __path__)
load_entry_points("costate.heads")
