"""A mend taken out: old text is put into the source of a module when it is imported. Nothing of the library before that."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import CodeType, ModuleType

from .needs import Need, anything


@dataclass(frozen=True, slots=True)
class Change:
    """A text of a module, and its replacement in the defect.

    Attributes:
        module: the module's name below the package.
        now: the text, which must be in the source exactly once.
        then: the replacement.
    """

    module: str
    now: str
    then: str


@dataclass(frozen=True, slots=True)
class Defect:
    """A defect of an earlier version.

    Attributes:
        name: the name on the command line.
        what: a description for people.
        changes: the changes that restore the defect.
        kinds: of the findings that show it. A defect that does not fit the current code causes other kinds.
        needs: what a world must have to show it.
        theme: the one whose worlds show it most often, if one does.
    """

    name: str
    what: str
    changes: tuple[Change, ...]
    kinds: tuple[str, ...]
    needs: Need = anything
    theme: str = ""


class StaleError(Exception):
    """The source is not what the defect was written for."""


def source_of(module: str) -> Path:
    """Return the file of a module of the library, without importing it."""
    spec = find_spec("aiokprod")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.joinpath(*module.split(".")).with_suffix(".py")


def sources_with(defect: Defect) -> dict[str, str]:
    """Return the changed sources, by the names of their modules below the package.

    Raises:
        StaleError: a text is not there, or twice.
    """
    sources: dict[str, str] = {}
    for change in defect.changes:
        text = sources.get(change.module) or source_of(change.module).read_text()
        if text.count(change.now) != 1:
            raise StaleError(f"{defect.name}: {text.count(change.now)} times in {change.module}: {change.now!r}")
        sources[change.module] = text.replace(change.now, change.then)
    return sources


def code_with(defect: Defect) -> dict[str, CodeType]:
    """Return the changed sources compiled; a SyntaxError if a change does not fit."""
    return {
        module: compile(text, str(source_of(module)), "exec", dont_inherit=True)
        for module, text in sources_with(defect).items()
    }


class _ChangedLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        """Return the compiled change instead of cached bytecode, which is of the unchanged source."""
        return self._code


class TakenOut(MetaPathFinder):
    """A finder that returns the changed modules before any other finder does."""

    def __init__(self, defect: Defect) -> None:
        """Compile the changes; raises as `code_with`."""
        self._code = {f"aiokprod.{module}": code for module, code in code_with(defect).items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of a changed module, for importlib."""
        code = self._code.get(fullname)
        if code is None:
            return None
        file = str(source_of(fullname.partition(".")[2]))
        return spec_from_file_location(fullname, file, loader=_ChangedLoader(fullname, file, code))

    def install(self) -> None:
        """Install the finder for the whole process, in the pure form."""
        os.environ["AIOKPROD_PURE"] = "1"
        importlib.import_module("aiokprod")  # which has a finder for the sources, too
        early = [module for module in self._code if module in sys.modules]
        assert not early, f"imported before their mends were taken out: {early}"
        sys.meta_path.insert(0, self)

    def check(self) -> None:
        """Check, after all imports, that the changed sources are in use."""
        for module in self._code:
            # Some are loaded when they are first used, as those of transactions.
            loader = getattr(importlib.import_module(module), "__loader__", None)
            assert isinstance(loader, _ChangedLoader), f"{module} is in use as it stands"
