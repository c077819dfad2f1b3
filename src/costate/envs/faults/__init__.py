"""Sensor faults between the true observation and the one that a policy reads, with one file per kind."""

from costate.envs.faults.base import AbstractFault as AbstractFault
from costate.envs.faults.base import Drawn as Drawn
from costate.envs.faults.base import FaultState as FaultState
from costate.envs.faults.base import Reading as Reading
