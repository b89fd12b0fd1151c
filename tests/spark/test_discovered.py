"""The module by which Spark finds the format: it may fail to offer a source, and never to be imported."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aiokprod.spark.discovered as discovered
from aiokprod.spark.source import AiokprodSource

BROKEN = """
import sys
sys.modules[{module!r}] = None
sys.path.insert(0, {folder!r})
import pyspark_aiokprod
print(hasattr(pyspark_aiokprod, "DefaultSource"))
"""


def test_it_offers_the_source() -> None:
    assert discovered.DefaultSource is AiokprodSource
    assert AiokprodSource.name() == "aiokprod"


def test_it_has_nothing_else() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Other'"):
        discovered.Other


@pytest.mark.parametrize("module", ["pyspark", "aiokprod.config", "aiokprod.spark.source"])
def test_whatever_is_broken_it_can_be_imported_and_offers_nothing(module: str, tmp_path: Path) -> None:
    (tmp_path / "pyspark_aiokprod.py").write_bytes(Path(discovered.__file__).read_bytes())
    code = BROKEN.format(module=module, folder=str(tmp_path))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
    assert "format 'aiokprod' is not available: " in done.stderr


def test_importing_it_imports_neither_spark_nor_us(tmp_path: Path) -> None:
    (tmp_path / "pyspark_aiokprod.py").write_bytes(Path(discovered.__file__).read_bytes())
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pyspark_aiokprod"
    code += "; print([name for name in ('pyspark', 'aiokprod', 'pyarrow') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
