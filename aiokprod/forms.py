"""The two forms of the hot modules, compiled by mypyc (if the wheel has them) or their sources, and which one is used.

Both lie side by side and behave alike. AIOKPROD_PURE=1, set before the first import, selects the sources (for a
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
HOT: Final = f"{PACKAGE}.pipeline.partition.batch"


class SourceFinder:
    """A finder of this package's modules by their sources only."""

    def __init__(self) -> None:
        self._finders: dict[str, FileFinder] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find the source of a module for importlib; None for modules of other packages."""
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
    """Import the sources from here on; called first, when the package is imported with AIOKPROD_PURE=1."""
    sys.meta_path.insert(0, SourceFinder())


def is_compiled() -> bool:
    """Return True if the compiled form is in use."""
    spec = find_spec(HOT)
    return spec is not None and spec.origin is not None and not spec.origin.endswith(tuple(SOURCE_SUFFIXES))


if TYPE_CHECKING:  # the compiler knows the decorator by this name
    from mypy_extensions import mypyc_attr as mypyc_attr  # noqa: PLC0414 - passed on
else:

    def mypyc_attr(**_):
        """Ignore the attributes of a compiled class, which mean nothing to the interpreter."""
        return lambda kind: kind
