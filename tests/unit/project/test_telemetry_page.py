"""docs/telemetry.md: its program pushes, and the tables have the names and the errors of the code."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from aiokprod.metrics import Metrics
from aiokprod.telemetry.figures import KAFKA, Figures
from aiokprod.telemetry.push_schedule import SOON, STOPS
from aiokprod.wire.codes import NAMES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "telemetry.md").read_text(encoding="utf-8")


def test_the_program_prints_its_pushes(capsys: pytest.CaptureFixture[str]) -> None:
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(text, "docs/telemetry.md", "exec"), names)
    asyncio.run(names["main"]())
    *pushes, last = capsys.readouterr().out.splitlines()
    assert pushes and set(pushes) == {"zstd  True"} and last == "zstd last True"


def test_the_page_has_kafkas_names() -> None:
    metrics = Metrics()
    figures = Figures(metrics.kinds(), metrics.snapshot(), 0.0)
    made = {figure.name for figure in figures.figures(metrics.snapshot(), [KAFKA], 1.0, is_delta=True)}
    assert made == set(re.findall(r"^\| `(org\.apache\.[a-z.]+)`", PAGE, re.MULTILINE))


def test_the_page_has_the_errors_of_the_schedule() -> None:
    rows = dict(re.findall(r"^\| ([A-Z_, a-z]+) \| (.*) \|$", PAGE, re.MULTILINE))
    (stopping,) = [codes for codes, what in rows.items() if "pushes no more" in what]
    assert set(stopping.split(", ")) == {NAMES[code] for code in STOPS}
    assert {NAMES[code] for code in SOON} <= set(rows)
