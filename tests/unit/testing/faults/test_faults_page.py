"""docs/faults_language.md: its programs run, and its table names every verb and every effect."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from aiokprod.testing.faults import FaultVerbs, effects

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "faults_language.md").read_text()
PROGRAMS = re.findall(r"^(<!-- real -->\n)?```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
FAST = [text for real, text in PROGRAMS if not real]
REAL = [text for real, text in PROGRAMS if real]


def run(program: str) -> None:
    exec(compile(program, "docs/faults_language.md", "exec"), {"__name__": "__main__"})


def test_the_page_has_its_programs() -> None:
    assert (len(FAST), len(REAL)) == (4, 1)


@pytest.mark.parametrize("number", range(4))
def test_each_program_runs(number: int) -> None:
    run(FAST[number])


@pytest.mark.real
@pytest.mark.slow
def test_the_program_for_real_brokers_runs() -> None:
    run(REAL[0])


def test_the_table_names_every_verb_and_every_effect() -> None:
    verbs = {name for name in vars(FaultVerbs) if not name.startswith("_")} - {"add_fault", "clear_faults", "release"}
    named = set(re.findall(r"`(\w+)\(", PAGE))
    assert verbs <= named, verbs - named
    made = {
        name
        for name, value in vars(effects).items()
        if isinstance(value, type) and value.__module__ == effects.__name__
    }
    rows = set(re.findall(r"\| `(\w+)` \|$", PAGE, re.MULTILINE))
    assert made == rows
