"""Plain English: words and patterns that an engineer has to read twice are found by a list, and by nothing else.

    python tests/unit/project/test_plain_english.py [folder or file ...]

prints each place. Comments, docstrings and other texts of Python files, names of tests, and the pages are looked at.
That docstrings of functions begin with a verb in the imperative is checked by ruff (D401).
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
WORDS = {
    r"who(m|ever|soever)?": "name the thing: the task, the caller, the broker; `it`, `that`, `which`",
    r"(no|some|any|every)body": "name the thing: no task, a caller, every broker",
    r"anew": "again, or from the start",
    r"befall(s|en)?|befell": "happen to; a fault",
    r"deeds?": "fault, step",
    r"of (now|before)": "current; earlier",
    r"(failed|fails|died|dies) of": "failed with, ended by",
    r"such a one|the like of": "name the thing",
    r"hence|thereof|therein|whereof|whereupon|thereupon": "so, of it, in it",
    r"is no more": "has ended, does not exist any more",
    r"just now|of today|as ever": "at this moment; current; still",
    r"shall|lest": "must, will; so that ... not",
    r"reckon(ed|s)?|dear(er|est)": "compute, count; costs more",
    r"upon|thence|whence|whither": "on, from there, from where, where to",
}
FIRST_WORDS = (
    r"(It|Its|What|Of|Who|Whose|Whether|Whatever|Whichever|As it|Is|Are|Does|Do|Did|Has|Have|Was|Were|Can|May|Must) "
)
"""A docstring begins with a verb in the imperative (functions) or with a noun phrase (classes, modules, values)."""
ALLOWED = {
    "who am i": "Kafka's own name of a request",
}
ANY_WORD = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)
LISTED = [(re.compile(rf"\b({words})\b", re.IGNORECASE), advice) for words, advice in WORDS.items()]
FIRST = re.compile(FIRST_WORDS)
PAGES = (".md", ".py")


def files() -> list[Path]:
    """Return what is under version control, or will be."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md", ".ci/run", ".build/*.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return [ROOT / name for name in sorted(set(listed)) if (ROOT / name).exists() and not is_made(name)]


def is_made(name: str) -> bool:
    """Return whether the file is generated, or is this list itself."""
    return name.startswith("aiokprod/wire/messages/") or name.endswith("test_plain_english.py")


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Yield each line of text of a file, with its number."""
    source = path.read_text()
    if path.suffix != ".py":
        yield from page_texts(source)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or token.type in STRINGS:
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield node.lineno, node.name.replace("_", " ")


STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}


def page_texts(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines of a page; of its code, the comments and the names of tests."""
    is_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            yield number, re.sub(r"`[^`]*`", "", line)
        elif test := re.match(r" *(?:async )?def (test_\w+)", line):
            yield number, test.group(1).replace("_", " ")
        else:
            yield number, "".join(re.findall(r"# .*", line))


def first_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the first line of each docstring."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text.splitlines()[0]


def found_in(path: Path) -> list[str]:
    """Return what the list finds in a file: place, words, advice."""
    name = path.relative_to(ROOT)
    found = []
    for number, line in texts(path):
        for pattern, advice in LISTED if ANY_WORD.search(line) else ():
            for match in pattern.finditer(line):
                if not any(words in line.lower() for words in ALLOWED):
                    found.append(f"{name}:{number}: {match.group(0)!r}: {advice}")
    if path.suffix == ".py":
        for number, line in first_lines(path):
            if FIRST.match(line):
                found.append(
                    f"{name}:{number}: the docstring begins {line[:30]!r}: begin with a verb, or a noun phrase"
                )
    return found


@pytest.mark.parametrize("part", ["aiokprod", "tests", "bench", "docs", "the rest"])
def test_no_text_has_to_be_read_twice(part: str) -> None:
    found = [line for path in files() if part_of(path) == part for line in found_in(path)]
    assert not found, "\n".join(found)


def part_of(path: Path) -> str:
    """Return the folder that a file is in."""
    first = path.relative_to(ROOT).parts[0]
    return first if first in ("aiokprod", "tests", "bench", "docs") else "the rest"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("The gate grants room.", 0),
        ("who waits in it", 1),
        ("nobody, of now", 2),
        ("a batch whose records wait", 0),
        ("To whom? `whoever`", 2),
    ],
)
def test_the_list_finds_its_words(text: str, count: int) -> None:
    assert sum(len(pattern.findall(text)) for pattern, _ in LISTED) == count


def test_of_the_code_on_a_page_the_comments_and_the_names_of_tests_are_looked_at() -> None:
    page = "Text\n```python\nasync def test_those_who_wait() -> None:\n    value = who()  # anew\n```\n`who`\n"
    found = [match for _, line in page_texts(page) for pattern, _ in LISTED for match in pattern.findall(line)]
    assert len(found) == 2


if __name__ == "__main__":
    asked = [Path(name).resolve() for name in sys.argv[1:]] or [ROOT]
    for path in files():
        if any(path == folder or folder in path.parents for folder in asked):
            print(*found_in(path), sep="\n", end="\n" if found_in(path) else "")
