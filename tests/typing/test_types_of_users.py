"""Programs of users have the types that a strict type checker asks for: a program of all idioms, and the pages' examples."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(__file__).with_name("user_program.py")
LIMIT_S = 600.0
BLOCK = re.compile(r"(?:<!-- file: (?P<name>\S+) -->\n)?^```python\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
OF_SPARK: Final = """
import pyarrow
from pyspark.sql import DataFrame, SparkSession
from aiokprod import audit

spark: SparkSession
df: DataFrame
orders: DataFrame
counts: DataFrame
log: DataFrame
table: pyarrow.Table
"""
OF_LETTERS: Final = "from aiokprod import Producer\nfrom aiokprod.errors import AiokprodError\n"
GIVEN: Final = {"docs/audit.md": OF_SPARK, "docs/spark.md": OF_SPARK, "docs/dead_letters.md": OF_LETTERS}
"""What the examples of a page take for granted."""
# In a section of these pages each block goes on where the one before ended.
ONE_PROGRAM_A_SECTION: Final = ("docs/frameworks.md",)


def programs(page: Path) -> dict[str, str]:
    """Return the modules of a page, by the names of their files."""
    label = page.relative_to(ROOT).as_posix()
    found: dict[str, str] = {}
    for number, section in enumerate(re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.MULTILINE)):
        blocks = list(BLOCK.finditer(section))
        if label in ONE_PROGRAM_A_SECTION and blocks:
            found[f"section_{number}.py"] = "\n".join(block["text"] for block in blocks)
            continue
        for index, block in enumerate(blocks):
            if label in GIVEN and "asyncio.run" not in block["text"]:
                found[f"block_{number}_{index}.py"] = GIVEN[label] + block["text"]
            else:
                found[block["name"] or f"block_{number}_{index}.py"] = block["text"]
    return found


def pages() -> list[Path]:
    every = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [page for page in every if "```python\n" in page.read_text(encoding="utf-8")]


def check(*files: Path, cwd: Path, cache: Path) -> None:
    """Run mypy --strict as a user does, without this project's settings."""
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file", "", "--ignore-missing-imports"]
    command += ["--follow-imports=silent", "--cache-dir", str(cache), *(str(file) for file in files)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mypy")


def test_every_idiom_of_users_has_its_types(cache: Path, tmp_path: Path) -> None:
    check(PROGRAM, cwd=tmp_path, cache=cache)


def parameters() -> list[Any]:
    """Return the pages; to check those with FastAPI, Litestar or PySpark takes half a minute."""
    slow = ("frameworks", "audit", "spark")
    return [pytest.param(page, id=page.stem, marks=[pytest.mark.slow] * (page.stem in slow)) for page in pages()]


@pytest.mark.parametrize("page", parameters())
def test_the_examples_of_a_page_pass_mypy_strict(page: Path, tmp_path: Path, cache: Path) -> None:
    for name, text in programs(page).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    check(*sorted(tmp_path.glob("*.py")), cwd=tmp_path, cache=cache)


def test_every_block_of_python_of_a_page_is_in_one_of_its_programs() -> None:
    for page in pages():
        text = page.read_text(encoding="utf-8")
        together = "\n".join(programs(page).values())
        assert all(block["text"] in together for block in BLOCK.finditer(text)), page
        assert text.count("```python\n") == len(BLOCK.findall(text))
