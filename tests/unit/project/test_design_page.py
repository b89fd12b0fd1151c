"""docs/design.md has every file of the package, with the first sentences of its docstring: the map is the tree.

`python tests/unit/project/test_design_page.py` brings the page up to date.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "design.md"
HEADING = "## File map\n"
MESSAGES = ROOT / "aiokprod" / "wire" / "messages"


def purpose(path: Path) -> str:
    """Return the first paragraph of a module's docstring, as a cell of a table."""
    text = ast.get_docstring(ast.parse(path.read_text()))
    assert text, f"{path} has no docstring"
    return " ".join(text.split("\n\n")[0].split()).replace("|", "\\|")


def file_map() -> str:
    """Return the section as the tree wants it."""
    parts = [HEADING]
    for folder in sorted({path.parent for path in (ROOT / "aiokprod").rglob("*.py")}):
        if folder == MESSAGES:
            continue
        parts.append(f"### {folder.relative_to(ROOT)}\n")
        head = folder / "__init__.py"
        if folder != ROOT / "aiokprod" and head.read_text().strip():
            parts.append(purpose(head) + "\n")
        rows = [f"| `{path.name}` | {purpose(path)} |" for path in sorted(folder.glob("*.py")) if path != head]
        parts.append("\n".join(["| file | purpose |", "|---|---|", *rows]) + "\n")
    names = ", ".join(f"`{path.name}`" for path in sorted(MESSAGES.glob("*.py")) if path.name != "__init__.py")
    parts.append(f"### {MESSAGES.relative_to(ROOT)}\n")
    parts.append(f"Generated from Kafka's message definitions by `nox -s wire`: {names}.\n")
    return "\n".join(parts)


def test_the_file_map_is_the_tree() -> None:
    page = PAGE.read_text()
    assert page[page.index(HEADING) :] == file_map(), (
        "python tests/unit/project/test_design_page.py brings it up to date"
    )
    assert page.count("| `") > 200


if __name__ == "__main__":
    old = PAGE.read_text()
    PAGE.write_text(old[: old.index(HEADING)] + file_map())
