"""docs/broker_rules.md says which rules of a broker the mock keeps, and which conformance case shows each.

`python tests/unit/project/test_broker_rules_page.py` brings the page's last column up to date with what the cases name.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "broker_rules.md"
CASES = ROOT / "tests" / "conformance"

ROW = re.compile(r"^\| (\d+\.\d+[a-z]?) \| (.*) \| (.*) \|$", re.MULTILINE)
NUMBER = re.compile(r"\b\d+\.\d+[a-z]?\b")
CASE = re.compile(r"`(test_\w+\.py)::(test_\w+)`")
NOT_COMPARED = ("not kept", "kept, ")


def rules_named_by(source: str) -> set[str]:
    named = re.findall(r"#.*?\bbroker: ([^#\n]*)", source)
    return {number for text in named for number in NUMBER.findall(text)}


def cases() -> dict[tuple[str, str], set[str]]:
    """Return the rules that each case names, by file and function."""
    found = {}
    for file in sorted(CASES.glob("test_*.py")):
        text = file.read_text()
        lines = text.splitlines()
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[file.name, node.name] = rules_named_by("\n".join(lines[node.lineno - 1 : node.end_lineno]))
    return found


def page() -> dict[str, str]:
    return {rule: shown for rule, _, shown in ROW.findall(PAGE.read_text())}


def test_each_case_that_the_page_names_is_there_and_names_the_rule() -> None:
    there = cases()
    wrong = [
        f"{rule}: {file}::{name}"
        for rule, shown in page().items()
        for file, name in CASE.findall(shown)
        if rule not in there.get((file, name), set())
    ]
    assert not wrong
    assert sum(len(CASE.findall(shown)) for shown in page().values()) > 150


def test_each_case_names_a_rule_of_the_page() -> None:
    known = page()
    assert {case: rules for case, rules in cases().items() if not rules or not rules <= set(known)} == {}


def test_a_rule_without_a_case_says_what_keeps_it_or_why_it_is_not_kept() -> None:
    for rule, shown in page().items():
        if not CASE.search(shown):
            assert shown.startswith(NOT_COMPARED), rule
        for file in re.findall(r"`(unit/[\w/]+\.py)`", shown):
            assert rule in rules_named_by((ROOT / "tests" / file).read_text()), f"{rule} is not named in {file}"


def test_each_rule_that_the_mock_cites_is_on_the_page() -> None:
    mock = ROOT / "aiokprod" / "testing" / "mock"
    cited = {rule for file in mock.rglob("*.py") for rule in re.findall(r"broker: (\d+\.\d+[a-z]?)", file.read_text())}
    assert cited - set(page()) == set()


def brought_up_to_date(text: str) -> str:
    """Return the page with the cases of its last column made again; other words in it stay."""
    shown: dict[str, list[str]] = {}
    for (file, name), rules in cases().items():
        for rule in rules:
            shown.setdefault(rule, []).append(f"`{file}::{name}`")

    def line(match: re.Match[str]) -> str:
        rule, what, where = match[1], match[2], match[3]
        words = CASE.sub("", where).strip(" ,;") or "yes"
        return f"| {rule} | {what} | {'; '.join([words, ', '.join(shown[rule])]) if rule in shown else words} |"

    return ROW.sub(line, text)


def test_bringing_the_page_up_to_date_changes_nothing() -> None:
    text = PAGE.read_text()
    assert brought_up_to_date(text) == text, "run: python tests/unit/project/test_broker_rules_page.py"


if __name__ == "__main__":
    PAGE.write_text(brought_up_to_date(PAGE.read_text()))
