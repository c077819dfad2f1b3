"""Recurrent cores, whose hidden state is read as a co-state. A file in this folder registers itself."""

from costate._base.discovery import import_all, load_entry_points
from costate.policies.cores.base import CORES as CORES
from costate.policies.cores.base import AbstractCore as AbstractCore
from costate.policies.cores.base import AbstractFastCore as AbstractFastCore
from costate.policies.cores.base import CoreConfig as CoreConfig
from costate.policies.cores.base import CoreFlops as CoreFlops
from costate.policies.cores.base import Memory as Memory
from costate.policies.cores.base import empty_core_state as empty_core_state
from costate.policies.cores.base import feature_gradients as feature_gradients
from costate.policies.cores.base import read_sequence as read_sequence
from costate.policies.cores.base import scan_unroll as scan_unroll
from costate.policies.cores.base import state_gradients as state_gradients
from costate.policies.cores.base import step_batch as step_batch
from costate.policies.cores.base import unroll as unroll

import_all(__name__, __path__)
load_entry_points("costate.cores")
