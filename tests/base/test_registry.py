"""Registries: one item under one name, and suggestions for misspelt names."""

import pytest

from costate._base.errors import ConfigError
from costate._base.registry import Registry


def test_a_name_can_be_registered_once():
    registry: Registry[int] = Registry("number")
    registry.add("one", 1)
    with pytest.raises(ConfigError, match="number name 'one' is registered twice"):
        registry.add("one", 2)


def test_unknown_names_get_the_nearest_ones_whatever_their_case():
    registry: Registry[int] = Registry("number")
    for value, name in enumerate(("WalkerStand", "WalkerWalk", "CheetahRun")):
        registry.add(name, value)
    with pytest.raises(ConfigError, match=r"Unknown number 'walkerstand'. Did you mean WalkerStand"):
        registry["walkerstand"]
    with pytest.raises(
        ConfigError, match=r"Unknown number 'zzz'. Known: WalkerStand, WalkerWalk, CheetahRun."
    ):
        registry["zzz"]


def test_an_item_knows_its_name():
    registry: Registry[type] = Registry("type")
    registry.register("text")(str)
    assert registry.name_of(str) == "text"
    with pytest.raises(ConfigError, match="not a registered type"):
        registry.name_of(int)
