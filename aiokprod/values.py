"""The bases of dataclasses that are made at import: equality, hash and `repr` that are not compiled for each class.

`dataclass` compiles each function that it makes, in every process that imports the class. With `repr=False, eq=False` and one
of these bases a class takes half the time; one whose `__init__` is written out, too, takes a sixth.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any


class Value:  # noqa: PLW1641 - its values change: no hash
    """A dataclass that is equal to another of its class with the same values, and is shown with them."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return _values(self) == _values(other)

    def __repr__(self) -> str:
        of_class: Any = type(self)
        shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(of_class) if one.repr)
        return f"{of_class.__qualname__}({shown})"


class FrozenValue(Value):
    """A `Value` whose dataclass is frozen: it can be a key."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(_values(self))


def _values(value: Any) -> tuple[Any, ...]:
    return tuple([getattr(value, one.name) for one in fields(value)])
