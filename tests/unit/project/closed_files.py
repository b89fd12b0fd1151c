"""The `sitecustomize` of a Python that cannot import the files that `CLOSED_FILES` lists: they are as if not installed.

docs_group.py puts it there.
"""

import importlib.machinery
import os
import sys
from collections.abc import Sequence
from pathlib import Path


class Closed:
    """Finds nothing, and forbids what is closed."""

    def __init__(self, files: frozenset[str]) -> None:
        self.files = files

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: object = None) -> None:
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is not None and spec.origin in self.files:
            raise ModuleNotFoundError(f"No module named {name!r}: {spec.origin} is closed", name=name)


closed = Path(os.environ["CLOSED_FILES"]).read_text(encoding="utf-8").split("\n")
sys.meta_path.insert(0, Closed(frozenset(closed)))  # type: ignore[arg-type]
