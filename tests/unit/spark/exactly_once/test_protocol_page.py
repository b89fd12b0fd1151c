"""docs/spark_exactly_once.md says what the protocol does: its rules, and the twenty failures, each with a test."""

from __future__ import annotations

import re
from pathlib import Path

from protocol_variants import VARIANTS
from protocol_world import Wrong

from aiokprod.spark.exactly_once import protocol
from aiokprod.spark.exactly_once.protocol import EARLIER_QUERIES, GENERATIONS, MARKERS_LAST_S

ROOT = Path(__file__).resolve().parents[4]
PAGE = (ROOT / "docs" / "spark_exactly_once.md").read_text()
TESTS = ROOT / "tests" / "spark"


def test_each_rule_is_on_the_page_and_is_switched_off_once() -> None:
    rules = re.findall(r"^\| (X\d+) \|", PAGE, re.MULTILINE)
    assert rules == [f"X{number}" for number in range(1, len(rules) + 1)]
    assert {variant.rule.partition(",")[0] for variant in VARIANTS} == set(rules)
    assert set(re.findall(r"\bX\d+\b", protocol.__doc__ or "")) == set(rules)


def test_the_page_says_of_each_rule_what_the_exploration_finds_without_it() -> None:
    said = {
        "twice": Wrong.DUPLICATE, "lost": Wrong.LOST, "in part": Wrong.IN_PART, "refused": Wrong.REFUSED,
        "no end": Wrong.ENDLESS,
    }  # fmt: skip
    on_page = {
        (rule, frozenset(said[word] for word in part.split(", ")))
        for rule, parts in re.findall(r"^\| (X\d+) \|.*\| ([^|]+) \|$", PAGE, re.MULTILINE)
        for part in parts.split("; ")
    }
    assert on_page == {(variant.rule.partition(",")[0], variant.symptom) for variant in VARIANTS}


def test_the_page_says_for_how_long_a_part_without_a_marker_was_aborted() -> None:
    assert MARKERS_LAST_S == 6 * 24 * 3600
    assert "Until it is six days old, a part without a marker was aborted" in PAGE


def test_the_page_has_the_number_of_generations() -> None:
    assert f"epoch modulo {GENERATIONS}" in PAGE


def test_the_page_has_the_number_of_earlier_queries() -> None:
    assert f"up to {EARLIER_QUERIES} queries before" in PAGE
    assert f"the {EARLIER_QUERIES} queries that have decided before it" in PAGE


def test_each_failure_has_a_test_with_spark_on_real_brokers() -> None:
    failures, tests = PAGE[PAGE.index("## Failures") :].split("### The tests")
    cases = [int(number) for number in re.findall(r"^\| (\d+) \|", failures, re.MULTILINE)]
    assert cases == list(range(1, 21))
    found: list[int] = []
    for numbers, file in re.findall(r"^\| (\d[^|]*) \| `(test_\w+\.py)`", tests, re.MULTILINE):
        first, *rest = (int(number) for number in re.findall(r"\d+", numbers))
        of_row = range(first, rest[0] + 1) if " to " in numbers else (first, *rest)
        text = (TESTS / file).read_text()
        named = {int(number) for number in re.findall(r"\bcases? ?(\d+)", text, re.IGNORECASE)}
        assert named >= set(of_row), f"{file} does not say which of its tests is for {set(of_row) - named}"
        assert re.search(r"^pytestmark = .*mark\.real", text, re.MULTILINE), file
        assert "exactly_once_rig" not in text, f"{file} makes Spark's calls by hand"
        found += of_row
    assert sorted(found) == cases
