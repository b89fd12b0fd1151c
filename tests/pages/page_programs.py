"""The programs of every page: README.md and all of docs/. Tests run them and check their types.

A comment above a block of code says something about it:

    <!-- file: app.py -->          the block is a file of this name; the files of a page are one folder
    <!-- terminal: 1 -->           the block is typed into this terminal, or is shown by it (docs/tutorial.md)
    <!-- real -->                  the block needs real brokers; a test of the page runs it

Blocks that need Spark are run by tests/spark/test_spark_pages.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from page_blocks import FENCE

ROOT: Final = Path(__file__).resolve().parents[2]
MARK: Final = re.compile(r"<!-- ([\w ]+)(?:: (.*?))? -->")
SERVERS: Final = "localhost:9092"
"""Where programs of pages look for Kafka."""


@dataclass(frozen=True)
class Block:
    """One block of code of a page."""

    page: str
    number: int
    line: int
    language: str
    text: str
    marks: dict[str, str]
    section: str

    @property
    def name(self) -> str:
        return f"{self.page}:{self.line}"

    def padded(self) -> str:
        """Return the text with blank lines before it, so that tracebacks show the page's line numbers."""
        return "\n" * (self.line - 1) + self.text


def pages() -> list[Path]:
    """Return every page."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def label(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str = "") -> list[Block]:
    """Return the blocks of a page; of one language, if it is given."""
    source = page.read_text(encoding="utf-8")
    found = list(_blocks(label(page), source))
    return [block for block in found if not language or block.language == language]


def _blocks(page: str, source: str) -> Iterator[Block]:
    for number, match in enumerate(FENCE.finditer(source)):
        line = source.count("\n", 0, match.start("text")) + 1
        heading = re.findall(r"^## (.*)$", source[: match.start()], re.MULTILINE)
        marks = dict(MARK.findall(match["marks"]))
        yield Block(page, number, line, match["language"], match["text"], marks, heading[-1] if heading else "")


def python_pages() -> list[Path]:
    """Return the pages that have programs."""
    return [page for page in pages() if blocks(page, "python")]


def printed_after(block: Block, page: Path) -> str | None:
    """Return what the page says that a program prints: the block `text` that follows it under "It prints:"."""
    source = page.read_text(encoding="utf-8")
    after = source.split(block.text + "```\n", 1)[1]
    match = re.match(r"\s*It prints:\n\n```text\n(.*?)^```$", after, re.DOTALL | re.MULTILINE)
    return match[1] if match else None
