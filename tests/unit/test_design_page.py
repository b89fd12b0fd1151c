"""docs/design.md names every file of the package: the map is the tree."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_file_map_names_every_module() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    modules = [
        path.relative_to(ROOT)
        for path in (ROOT / "aiokprod").rglob("*.py")
        if path.name != "__init__.py" and path.parent.name != "messages"
    ]
    missing = [str(path) for path in modules if f"### {path.parent}\n" not in page or f"| `{path.name}` |" not in page]
    assert not missing, f"docs/design.md does not name {missing}"
    assert len(modules) > 100


def test_every_generated_module_is_named_and_nothing_else_is() -> None:
    page = (ROOT / "docs" / "design.md").read_text()
    line = next(line for line in page.splitlines() if line.startswith("In `aiokprod/wire/messages`: "))
    named = re.findall(r"`(\w+\.py)`", line)
    messages = ROOT / "aiokprod" / "wire" / "messages"
    assert named == sorted(path.name for path in messages.glob("*.py") if path.name != "__init__.py")
