"""docs/configuration.md says what the code does: options, defaults, limits, other clients' names."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aiokprod.config import ProducerConfig
from aiokprod.config.environment import ALIASES, FROM_FILE
from aiokprod.config.foreign_names import (
    CODEC_LEVELS,
    IGNORED,
    REFUSED,
    REFUSED_STARTS,
    RENAMED,
    dotted,
    ignored,
    of_others,
    refused,
)

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "configuration.md").read_text(encoding="utf-8")
FIELDS = {item.name: item for item in dataclasses.fields(ProducerConfig)}


class Row(NamedTuple):
    option: str
    default: str
    unit: str
    must_be: str
    java: str
    librdkafka: str
    meaning: str


def table(heading: str) -> list[list[str]]:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


ROWS = {row.option.strip("`"): row for row in (Row(*cells) for cells in table("Options"))}


def test_the_table_has_every_option_in_the_order_of_the_code() -> None:
    assert list(ROWS) == list(FIELDS)


@pytest.mark.parametrize("option", list(FIELDS))
def test_a_row_has_the_default_and_the_limits_of_the_code(option: str) -> None:
    assert option in ROWS, f"add a row for {option} to the options in docs/configuration.md"
    default = FIELDS[option].default
    assert ROWS[option].default == ("required" if default is dataclasses.MISSING else f"`{default!r}`")
    assert ROWS[option].must_be == FIELDS[option].metadata["check"].describe()
    assert ROWS[option].meaning


UNIT_OF_ENDING = {"_ms": "ms", "_bytes": "bytes", "_size": "bytes", "_memory": "bytes"}
OTHER_NUMBERS = {"retries": "", "max_in_flight_requests_per_connection": "requests", "compression_level": ""}
"""the unit of each number whose name does not end with one"""
UNIT_OF_TEXT = {"ssl_cafile": "path", "ssl_certfile": "path", "ssl_keyfile": "path"}
UNIT_OF_TEXT |= {"ssl_ca_pem": "PEM", "ssl_cert_pem": "PEM", "ssl_key_pem": "PEM"}


@pytest.mark.parametrize("option", list(FIELDS))
def test_a_row_has_the_unit_of_its_option(option: str) -> None:
    of_ending = [unit for ending, unit in UNIT_OF_ENDING.items() if option.endswith(ending)]
    if not re.match(r"a (whole )?number\b", FIELDS[option].metadata["check"].describe()):
        assert of_ending == [], "the name promises a number"
        assert ROWS[option].unit == UNIT_OF_TEXT.get(option, "")
    else:
        assert of_ending or option in OTHER_NUMBERS, "name its unit here, also if it is a mere count"
        assert [ROWS[option].unit] == (of_ending or [OTHER_NUMBERS[option]])


@pytest.mark.parametrize("option", list(FIELDS))
def test_the_names_of_other_clients_are_read_as_this_option(option: str) -> None:
    for name in [*names_in(ROWS[option].java), *names_in(ROWS[option].librdkafka)]:
        assert refused(name) is None
        assert ignored(name) is None
        ours = RENAMED.get(name, name.replace(".", "_"))
        assert (ours if name not in CODEC_LEVELS else "compression_level") == option


def test_every_name_that_is_read_is_on_the_page() -> None:
    spellings = {*RENAMED, *CODEC_LEVELS}
    missing = {name for name in spellings if f"`{name}`" not in PAGE and f"`{name.replace('.', '_')}`" not in PAGE}
    assert missing == set()


def part(heading: str) -> dict[str, str]:
    """Return what a table of a subsection says of each name, in the spelling with dots."""
    section = PAGE.split(f"\n### {heading}\n")[1].split("\n### ")[0].split("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| `")]
    return {dotted(name): cells[-1] for cells in rows for name in names_in(cells[0])}


def test_the_page_has_every_option_that_is_ignored_or_refused_and_says_why() -> None:
    others = {"group.id", "session.timeout.ms", "auto.offset.reset", "enable.auto.commit"}
    registries = {"schema.registry.*", "basic.auth.*"}
    told = part("Ignored")
    assert {name: told[name] for name in told.keys() - others - registries} == {
        name: absent.advice for name, absent in IGNORED.items()
    }
    assert {told[name] for name in others} == {f"options of {of_others('group.id')}"}
    assert {told[name] for name in registries} == {of_others("basic.auth.x")}
    starts = {f"{start}*": absent for start, absent in REFUSED_STARTS.items()}
    assert part("Refused") == {name: absent.advice for name, absent in {**REFUSED, **starts}.items()}


def test_the_page_names_the_variables_that_are_read() -> None:
    for variable in (*ALIASES, *(f"AIOKPROD_{secret.upper()}_FILE" for secret in FROM_FILE)):
        assert f"`{variable}`" in PAGE


def test_the_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [example] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    assert names["quick"].linger_ms == 0
    assert "compression_type = 'gzip' (given)" in capsys.readouterr().out
