"""`ParameterType`: click's type of a parameter, which is generic for type checkers and, before click 8.4, not at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    ParameterType = click.ParamType
else:

    class ParameterType(click.ParamType):
        """The base class of our types of parameters: `ParameterType[int]` converts to an int."""

        def __class_getitem__(cls, item: object) -> type:
            return cls
