"""Parts that are chosen by name on the command line, as types from which the parser reads the choices."""

import tyro

from costate.config.presets import PRESETS
from costate.learners import LEARNERS
from costate.policies.cores import CORES
from costate.policies.readouts import READOUTS

AlgorithmName = tyro.extras.literal_type_from_choices(LEARNERS.names())
PresetName = tyro.extras.literal_type_from_choices(PRESETS)
CoreName = tyro.extras.literal_type_from_choices(CORES.names())
ReadoutName = tyro.extras.literal_type_from_choices(READOUTS.names())
