"""The fenced blocks and the code spans of a page; tests of pages find them here, and in no other way.

A block is written in one way: three backticks and one word, which is its language, alone on a line; three backticks as far
from the margin end it. `refused` finds whatever else Markdown takes for a block of code: no test would see it.
"""

from __future__ import annotations

import re
from typing import Final

FENCE: Final = re.compile(
    r"(?P<marks>(?:^<!-- [^\n]* -->\n)*)"
    r"^(?P<indent> *)```(?P<language>[\w+-]*|\{toctree\})\n(?P<text>.*?)^(?P=indent)```$",
    re.DOTALL | re.MULTILINE,
)
OTHER_FENCE: Final = re.compile(r"^[\s>*+.)\d-]*(`{3,}(?!.*`)|~{3,}|:{3,})")
"""Begins a line that is a fence, also behind the mark of a list or of a quotation."""
HTML: Final = re.compile(r"<(pre|code|script|textarea)\b", re.IGNORECASE)
INDENTED: Final = re.compile(r"^[ >]*( {4}|\t)\s*\S")
NO_PARAGRAPH: Final = re.compile(r"^\s*(#.*|<.*|---+|\*\*\*+|___+)?$")
"""A line that is no text: an indented line behind it is a block of code."""
SPAN: Final = re.compile(r"(?<!`)(`+)(?!`)((?:(?!\n[ >]*\n).)+?)(?<!`)\1(?!`)", re.DOTALL)


def without_blocks(source: str) -> str:
    """Return a page with empty lines instead of its blocks, so that the lines keep their numbers."""
    return FENCE.sub(lambda match: "\n" * match[0].count("\n"), source)


def refused(source: str) -> list[str]:
    """Return what a page writes as code in a way that the tests do not see: the line, and how it has to be written."""
    found: list[tuple[int, str]] = []
    for match in FENCE.finditer(source):
        first = source.count("\n", 0, match.start("text")) + 1
        for number, line in enumerate(match["text"].splitlines(), first):
            if OTHER_FENCE.match(line):
                found.append(
                    (number, f"a fence inside a block: {line.strip()}; the block above has no end, or another")
                )
    before = ""
    for number, line in enumerate(without_blocks(source).splitlines(), 1):
        if OTHER_FENCE.match(line):
            found.append(
                (number, f"{line.strip()}: write ``` and the language, one word, alone on the line; end it by ```")
            )
        elif HTML.search(SPAN.sub("", line)):
            found.append((number, f"{line.strip()}: write code between ``` and ```, not in HTML"))
        elif INDENTED.match(line) and NO_PARAGRAPH.match(before.replace(">", "")):
            found.append((number, f"{line.strip()}: an indented block; write it between ``` and ```"))
        before = line
    return [f"line {number}: {text}" for number, text in sorted(found)]


def spans(source: str) -> list[tuple[int, str]]:
    """Return the code spans of a page, in text and in tables, on one line each: the line of the page, the text."""
    text = without_blocks(source)
    return [
        (text.count("\n", 0, match.start()) + 1, re.sub(r"\s+", " ", match[2].replace(r"\|", "|")).strip())
        for match in SPAN.finditer(text)
    ]
