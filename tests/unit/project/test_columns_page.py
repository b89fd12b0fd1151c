"""docs/columns.md: its programs run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "columns.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_of_the_page_runs(program: str) -> None:
    exec(compile(program, "docs/columns.md", "exec"), {"__name__": "__main__"})


def test_the_page_has_programs() -> None:
    assert len(PROGRAMS) == 2
