"""Names of parts that can be chosen on the command line, as types from which the parser reads the choices."""

from typing import Any

import tyro

from costate._base.registry import Registry
from costate.config.presets import preset_names
from costate.learners import LEARNERS
from costate.policies.cores import CORES
from costate.policies.readouts import READOUTS


def named_by(registry: Registry[Any]) -> Any:
    """Return the type of the names in a registry."""
    return tyro.extras.literal_type_from_choices(registry.names())


AlgorithmName = named_by(LEARNERS)
PresetName = tyro.extras.literal_type_from_choices(preset_names())
CoreName = named_by(CORES)
ReadoutName = named_by(READOUTS)
