"""`Late`: a module that is loaded when it is used, or when an annotation that names it is evaluated."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Late:
    """A stand-in for a module, for annotations of public methods.

        if TYPE_CHECKING:
            from aiokprod import explanation
        else:
            explanation = Late("aiokprod.explanation")

    An annotation `explanation.Explanation` is then what it says to type checkers and to `typing.get_type_hints`, and a program
    that evaluates none loads no module.
    """

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        return getattr(import_module(self._module), name)

    def __repr__(self) -> str:
        return f"Late({self._module!r})"
