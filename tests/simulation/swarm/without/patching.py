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
    """In one module, text of today and what stands there with the defect.

    Attributes:
        module: its name below the package.
        now: found exactly once in its source.
        then: stands there instead.
    """

    module: str
    now: str
    then: str


@dataclass(frozen=True, slots=True)
class Defect:
    """What was wrong once.

    Attributes:
        name: for the command line.
        what: for people.
        changes: that put it back.
        kinds: of the findings that tell of it. A defect that does not fit the code of today makes others.
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
    """The file of a module of the library, without importing it."""
    spec = find_spec("aiokprod")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent.joinpath(*module.split(".")).with_suffix(".py")


def sources_with(defect: Defect) -> dict[str, str]:
    """The changed sources, by the names of their modules below the package.

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
    """As `sources_with`, compiled; a SyntaxError if a change does not fit."""
    return {
        module: compile(text, str(source_of(module)), "exec", dont_inherit=True)
        for module, text in sources_with(defect).items()
    }


class _ChangedLoader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        """No cached bytecode: it is of the source as it stands."""
        return self._code


class TakenOut(MetaPathFinder):
    """Finds the changed modules before anything else does."""

    def __init__(self, defect: Defect) -> None:
        """Raises as `code_with`."""
        self._code = {f"aiokprod.{module}": code for module, code in code_with(defect).items()}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As importlib asks for it."""
        code = self._code.get(fullname)
        if code is None:
            return None
        file = str(source_of(fullname.partition(".")[2]))
        return spec_from_file_location(fullname, file, loader=_ChangedLoader(fullname, file, code))

    def install(self) -> None:
        """For the whole process, in the pure form."""
        os.environ["AIOKPROD_PURE"] = "1"
        importlib.import_module("aiokprod")  # which has a finder for the sources, too
        early = [module for module in self._code if module in sys.modules]
        assert not early, f"imported before their mends were taken out: {early}"
        sys.meta_path.insert(0, self)

    def check(self) -> None:
        """After all has been imported: is it the changed source that is in use?"""
        for module in self._code:
            loader = getattr(sys.modules.get(module), "__loader__", None)
            assert isinstance(loader, _ChangedLoader), f"{module} is in use as it stands"
