"""The dependency group `docs`, and Pythons in which nothing else can be imported, as in the session `docs` of nox."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[3]


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


def files_outside(opened: Iterable[str]) -> list[str]:
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
    """Return the environment of Pythons that cannot import these files; a folder keeps what they need for it."""
    (folder / "sitecustomize.py").write_bytes(Path(__file__).with_name("closed_files.py").read_bytes())
    listed = folder / "closed"
    listed.write_text("\n".join(closed), encoding="utf-8")
    paths = os.pathsep.join([str(folder), str(ROOT)])
    return os.environ | {
        "PYTHONPATH": paths,
        "CLOSED_FILES": str(listed),
        "AIOKPROD_PURE": "1",
    }  # as docs/conf.py has it
