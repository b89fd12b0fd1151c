"""docs/faults.md says where each row of the fault catalogue is shown: it is shown there, and nothing is left out.

`python tests/unit/project/test_fault_page.py` brings the page's last column up to date with what the tests name.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
ROW = re.compile(r"^\| ([A-Z]\d+) \| .* \| (.*) \|$", re.MULTILINE)
LATER = {"comes with transactions"}


def page() -> dict[str, str]:
    return dict(ROW.findall((ROOT / "docs" / "faults.md").read_text()))


def rows_named_in(file: Path) -> set[str]:
    named = (line.split("faults", 1)[1] for line in file.read_text().splitlines() if "faults:" in line)
    return {row for text in named for row in re.findall(r"\b[A-Z]\d{1,2}\b", text)}


def test_each_row_is_named_by_the_tests_that_are_said_to_show_it() -> None:
    rows = page()
    assert len(rows) > 180
    wrong = []
    for row, where in rows.items():
        if where in LATER:
            continue
        files = re.findall(r"`([^`]+)`", where)
        if not files:
            wrong.append(f"{row}: {where}")
        for name in files:
            file = ROOT / "tests" / name
            if not file.exists() or row not in rows_named_in(file):
                wrong.append(f"{row} is not named in {name}")
    assert not wrong


def test_each_row_that_a_test_names_is_on_the_page() -> None:
    rows = page()
    families = {row[0] for row in rows}
    named = {row for file in (ROOT / "tests").rglob("*.py") for row in rows_named_in(file)}
    unknown = {row for row in named if row[0] in families and row not in rows}
    assert not unknown


def brought_up_to_date(text: str) -> str:
    """Return the page with its last column made again."""
    shown: dict[str, list[str]] = {}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        for row in rows_named_in(file):
            shown.setdefault(row, []).append(f"`{file.relative_to(ROOT / 'tests')}`")

    def line(match: re.Match[str]) -> str:
        row, where = match[1], match[2]
        return match[0].removesuffix(f"{where} |") + f"{', '.join(shown.get(row, [where]))} |"

    return ROW.sub(line, text)


def test_bringing_the_page_up_to_date_changes_nothing() -> None:
    text = (ROOT / "docs" / "faults.md").read_text()
    assert brought_up_to_date(text) == text, "run: python tests/unit/project/test_fault_page.py"


if __name__ == "__main__":
    target = ROOT / "docs" / "faults.md"
    target.write_text(brought_up_to_date(target.read_text()))
