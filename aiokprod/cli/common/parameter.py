"""Types of parameters.

`ParameterType` is click's type, which is generic for type checkers and, before click 8.4, not at run time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, cast

import click

if TYPE_CHECKING:
    ParameterType = click.ParamType
else:

    class ParameterType(click.ParamType):
        """The base class of our types of parameters: `ParameterType[int]` converts to an int."""

        def __class_getitem__(cls, item: object) -> type:
            return cls


class Number(click.FloatRange):
    """The parameter type of a number within bounds. click's own takes `nan`, which is within all, and `inf`."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        found = float(super().convert(cast("float", value), param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number that can be used here", param, ctx)
        return found
