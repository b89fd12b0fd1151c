"""Which form of the hot modules is used: compiled by mypyc, where the wheel has them, or their sources.

Both lie side by side and behave alike; AIOKPROD_PURE=1, set before the first import, chooses the sources (for a
debugger, for a traceback with every line, to compare).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Final

PACKAGE: Final = __name__.partition(".")[0]
HOT: Final = f"{PACKAGE}.pipeline.batch"


class SourceFinder:
    """Finds modules of this package by their sources only."""

    def __init__(self) -> None:
        self._finders: dict[str, FileFinder] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As importlib asks for it; None for what is not ours."""
        if path is None or not fullname.startswith(f"{PACKAGE}."):
            return None
        for entry in path:
            finder = self._finders.get(entry)
            if finder is None:
                finder = self._finders[entry] = FileFinder(entry, (SourceFileLoader, SOURCE_SUFFIXES))
            spec = finder.find_spec(fullname, target)
            if spec is not None:
                return spec
        return None


def use_sources() -> None:
    """Called when the package is imported with AIOKPROD_PURE=1, before any other of its modules."""
    sys.meta_path.insert(0, SourceFinder())


def is_compiled() -> bool:
    """Is the compiled form in use?"""
    spec = find_spec(HOT)
    return spec is not None and spec.origin is not None and not spec.origin.endswith(tuple(SOURCE_SUFFIXES))


if TYPE_CHECKING:  # the compiler knows it by its own name
    from mypy_extensions import mypyc_attr as mypyc_attr  # noqa: PLC0414 - passed on
else:

    def mypyc_attr(**_):
        """Attributes of a compiled class mean nothing to the interpreter."""
        return lambda kind: kind
