"""Tables of items by name. An unknown name raises an error with the nearest known ones."""

import difflib
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

from costate._base.errors import ConfigError

Item = TypeVar("Item")


class Registry(Generic[Item]):
    """Items of one kind under unique names.

    An item that is registered appears in ``--help`` and is tested.
    """

    def __init__(self, kind: str, listed_by: str = "") -> None:
        self.kind = kind
        self._listing = f", listed by `{listed_by}`" if listed_by else ""
        self._items: dict[str, Item] = {}

    def add(self, name: str, item: Item) -> Item:
        if name in self._items:
            raise ConfigError(
                f"The {self.kind} name {name!r} is registered twice. Choose another name for the new one."
            )
        self._items[name] = item
        return item

    def register(self, name: str) -> Callable[[Item], Item]:
        """Return a decorator that adds what it decorates under ``name``."""
        return lambda item: self.add(name, item)

    def __getitem__(self, name: Any) -> Item:
        self.require_text(name)
        if name not in self._items:
            raise ConfigError(f"Unknown {self.kind} {name!r}. {nearest(name, self.names(), self._listing)}")
        return self._items[name]

    def require_text(self, name: Any) -> None:
        """Raise if a name, which may come from any file, is not a string."""
        if not isinstance(name, str):
            raise ConfigError(
                f"The name of a {self.kind} is {name!r}, but it should be a string, such as "
                f"{next(iter(self._items), '')!r}."
            )

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name in self._items

    def __iter__(self) -> Iterator[Item]:
        return iter(self._items.values())

    def names(self) -> tuple[str, ...]:
        return tuple(self._items)

    def name_of(self, item: Item) -> str:
        """Return the name under which ``item`` is registered."""
        for name, known in self._items.items():
            if known is item:
                return name
        raise ConfigError(f"{item!r} is not a registered {self.kind}. Registered: {', '.join(self._items)}.")


def nearest(name: str, names: tuple[str, ...], listing: str = "") -> str:
    """Return a sentence about an unknown name: the closest known ones, and all of them if there are few."""
    by_lower = {known.lower(): known for known in names}
    close = [by_lower[match] for match in difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)]
    hint = f"Did you mean {' or '.join(close)}? " if close else ""
    known = ", ".join(names) if len(names) <= 20 else f"{len(names)} names{listing}"
    return f"{hint}Known: {known}."
