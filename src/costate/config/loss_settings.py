"""Auxiliary losses as flat settings: `belief_coef` is the field `coef` of the loss `belief`."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from costate._base.errors import ConfigError
from costate._base.plain_data import decode
from costate.losses import LOSSES, AuxiliaryLossConfig


def loss_settings() -> dict[str, tuple[str, "dataclasses.Field[Any]"]]:
    """Return flat name → the loss and its field, of all losses that are registered by now."""
    return {
        f"{name.replace('-', '_')}_{field.name}": (name, field)
        for name in LOSSES.names()
        for field in dataclasses.fields(LOSSES[name])
    }


def flat_losses(losses: Sequence[AuxiliaryLossConfig]) -> dict[str, Any]:
    """Return all flat settings. Losses that are not given have their defaults, with a weight of 0."""
    given = {LOSSES.name_of(type(loss)): loss for loss in losses}
    return {
        flat: getattr(given.get(name, LOSSES[name]()), field.name)
        for flat, (name, field) in loss_settings().items()
    }


def losses_of(flat: Mapping[str, Any]) -> tuple[AuxiliaryLossConfig, ...]:
    """Return the losses with a weight above 0; the inverse of :func:`flat_losses`."""
    found = []
    for name in LOSSES.names():
        values = {field.name: flat[key] for key, (owner, field) in loss_settings().items() if owner == name}
        loss = decode(AuxiliaryLossConfig, {"name": name, **values}, name)
        if loss.coef > 0.0:
            found.append(loss)
            continue
        idle = [field for field, value in values.items() if value != getattr(LOSSES[name](), field)]
        if idle:
            raise ConfigError(
                f"{name}.{idle[0]} is {values[idle[0]]}, but --{name}-coef is 0, so it has no effect. Give "
                f"--{name}-coef a weight above 0, or leave the setting out."
            )
    return tuple(found)


def check_losses(losses: Sequence[AuxiliaryLossConfig]) -> None:
    """Raise if a loss is given twice, or without a weight."""
    for loss in losses:
        if loss.coef == 0.0:
            name = LOSSES.name_of(type(loss))
            raise ConfigError(
                f"The auxiliary loss {name} has the weight 0, so it has no effect. Give it a weight above 0, "
                f"or leave it out."
            )
    names = [LOSSES.name_of(type(loss)) for loss in losses]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"The auxiliary loss {name} is given {names.count(name)} times. Give it once, with the sum "
                "of the weights."
            )
