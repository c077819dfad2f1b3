"""What can go wrong between a true observation and the one that a policy reads: one file for each kind of fault."""

from costate.envs.faults.base import AbstractFault as AbstractFault
from costate.envs.faults.base import Drawn as Drawn
from costate.envs.faults.base import FaultState as FaultState
from costate.envs.faults.base import Reading as Reading
