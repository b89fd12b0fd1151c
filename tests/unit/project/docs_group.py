"""Packages that the dependency group `docs` installs, and Pythons in which nothing else can be imported, as in nox's `docs`.

The file is also the `sitecustomize` of such a Python: it closes the packages whose files `CLOSED_FILES` lists.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]
LIST: Final = "CLOSED_FILES"


def closure(project: dict[str, Any], group: str) -> set[str]:
    """Return the names of the distributions that a dependency group installs, from the metadata of those that are here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    found = set[str]()
    seen = set[tuple[str, str]]()
    waiting = [Requirement(text) for text in requirements(project, group)]
    while waiting:
        wanted = waiting.pop()
        name = str(canonicalize_name(wanted.name))
        for extra in {"", *wanted.extras}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            found.add(name)
            needed = [Requirement(text) for text in needs(project, name)]
            waiting += [each for each in needed if each.marker is None or each.marker.evaluate({"extra": extra})]
    return found


def requirements(project: dict[str, Any], group: str) -> Iterator[str]:
    """Yield the requirements of a dependency group, with those of the groups that it includes."""
    for entry in project["dependency-groups"][group]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from requirements(project, entry["include-group"])


def needs(project: dict[str, Any], name: str) -> list[str]:
    """Return what a distribution requires; nothing if it is not here (a marker of its requirement excludes this platform)."""
    if name == project["project"]["name"]:  # from its sources: what is installed may be older
        extras = project["project"]["optional-dependencies"]
        return [
            *project["project"]["dependencies"],
            *(of_extra(text, each) for each in extras for text in extras[each]),
        ]
    try:
        return distribution(name).requires or []
    except PackageNotFoundError:
        return []


def of_extra(text: str, extra: str) -> str:
    """Return a requirement of an extra as metadata has it."""
    wanted, _, marker = text.partition(";")
    condition = f"({marker}) and extra" if marker else "extra"
    return f"{wanted}; {condition} == '{extra}'"


def closed_files(opened: Iterable[str]) -> list[str]:
    """Return the Python files of all distributions that are here, but for those that are named."""
    from packaging.utils import canonicalize_name

    names = set(opened)
    others = (each for each in distributions() if str(canonicalize_name(each.name)) not in names)
    return [str(path) for each in others for path in python_files(each)]


def python_files(of: Distribution) -> Iterator[Path]:
    for file in of.files or ():
        if file.suffix in (".py", ".so", ".pyd"):
            yield Path(str(of.locate_file(file)))


def environment(folder: Path, closed: Iterable[str]) -> dict[str, str]:
    """Return the environment of Pythons that cannot import these files; it keeps what it needs in an empty folder."""
    (folder / "sitecustomize.py").write_bytes(Path(__file__).read_bytes())
    (folder / "closed").write_text("\n".join(closed), encoding="utf-8")
    paths = [str(folder), str(ROOT)]
    of_the_sources = {"AIOKPROD_PURE": "1"}  # as docs/conf.py has it
    return os.environ | of_the_sources | {"PYTHONPATH": os.pathsep.join(paths), LIST: str(folder / "closed")}


class Closed:
    """Finds no module in files that are closed, as if they were not there."""

    def __init__(self, files: Iterable[str]) -> None:
        self.files = frozenset(files)

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.origin in self.files:
            raise ModuleNotFoundError(f"No module named {name!r}: {spec.origin} is none of the group", name=name)


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, Closed(Path(os.environ[LIST]).read_text(encoding="utf-8").split("\n")))
