"""Types of parameters.

`ParameterType` is click's type; generic, which that is from click 8.4 on only.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

import click

from aiokprod.cli.common.texts import unescaped

if TYPE_CHECKING:
    Value = TypeVar("Value")

    class ParameterType(click.ParamType, Generic[Value]):
        """The base class of our types of parameters: `ParameterType[int]` converts to an int."""

else:

    class ParameterType(click.ParamType):
        """The base class of our types of parameters: `ParameterType[int]` converts to an int."""

        def __class_getitem__(cls, item: object) -> type:
            return cls


EMPTY: Final = "it is empty: is a variable of the shell not set?"


class Text(click.types.StringParamType):
    """The parameter type of a text that is not empty, such as a name."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it."""
        found = str(super().convert(value, param, ctx))
        if not found:
            self.fail(EMPTY, param, ctx)
        return found


class Separator(click.types.StringParamType):
    """The parameter type of a text between others, with the escapes that `read` prints: a shell passes '\\t' on as it is."""

    def __init__(self, may_be_empty: bool) -> None:
        self._may_be_empty = may_be_empty

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Read it."""
        text = str(super().convert(value, param, ctx))
        if not text and not self._may_be_empty:
            self.fail(EMPTY, param, ctx)
        try:
            found = unescaped(text.encode("utf-8", "surrogateescape"))
        except ValueError as error:
            self.fail(f"{error}", param, ctx)
        if found is None:
            self.fail("\\N is the escape of null, which is no text", param, ctx)
        return found.decode("utf-8", "surrogateescape")


class FilePath(click.Path):
    """The parameter type of a path that is not empty: `Path("")` is the current folder."""

    def convert(
        self, value: str | os.PathLike[str], param: click.Parameter | None, ctx: click.Context | None
    ) -> str | bytes | os.PathLike[str]:
        """Read it."""
        if not os.fspath(value):
            self.fail(EMPTY, param, ctx)
        return super().convert(value, param, ctx)


class Number(click.FloatRange):
    """The parameter type of a number within bounds. click's own takes `nan`, which is within all, and `inf`."""

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read it."""
        found = float(super().convert(cast("float", value), param, ctx))
        if not math.isfinite(found):
            self.fail(f"{value!r} is not a number that can be used here", param, ctx)
        return found
