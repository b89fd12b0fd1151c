"""Which encoder is used where."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from aiokprod.pipeline.columns import column_encoder

FRESH = """
import asyncio, sys
from aiokprod.pipeline.columns.column_encoder import best_encoder
assert "numpy" not in sys.modules and "pyarrow" not in sys.modules
print(type(asyncio.run(best_encoder())).__name__)
"""


def test_packages_are_imported_when_columns_are_sent() -> None:
    told = subprocess.run([sys.executable, "-c", FRESH], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["VectorEncoder"]


@pytest.mark.parametrize("missing", ["numpy", "pyarrow", "pyarrow.compute"])
def test_without_one_of_them_columns_are_encoded_the_plain_way(missing: str) -> None:
    lines = [f"import sys; sys.modules[{missing!r}] = None", *FRESH.splitlines()]
    program = "\n".join(line for line in lines if not line.startswith("assert"))
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert told.stdout.split() == ["PlainEncoder"], told.stderr


def test_it_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    one = column_encoder.PlainEncoder()
    monkeypatch.setattr(column_encoder, "KNOWN", [one])
    assert asyncio.run(column_encoder.best_encoder()) is one
