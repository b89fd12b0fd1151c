"""`read -f FORMAT`: kcat's tokens, what they print, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from cli_runs import run, write

from aiokprod.cli.common.record_format import RecordFormat
from aiokprod.records.decoder import DecodedRecord
from aiokprod.testing import MockCluster


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as started:
        started.create_topic("t", partitions=2)
        yield started


def shown(text: str, **more: Any) -> bytes:
    given = {"key": b"k", "value": b"value", "headers": (("a", b"1"), ("b", None)), **more}
    record = DecodedRecord(7, 1_000, given["key"], given["value"], given["headers"])
    return RecordFormat(text).text("t", 1, record, lambda data: b"null" if data is None else data)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t %p %o %T", b"t 1 7 1000"),
        ("%k=%s", b"k=value"),
        ("%K %S", b"1 5"),
        ("%h", b"a=1,b=null"),
        ("%R", b"\0\0\0\5"),
        (r"%%\t\n\r\\\x00\xfF", b"%\t\n\r\\\x00\xff"),
        ("ö plain", "ö plain".encode()),
        ("%%s", b"%s"),
    ],
)
def test_a_token_prints_its_part_of_the_record(text: str, expected: bytes) -> None:
    assert shown(text) == expected


def test_null_has_the_length_of_kcat() -> None:
    assert shown("%K %S %k %s", key=None, value=None) == b"-1 -1 null null"
    assert shown("%S|%s", value=b"") == b"0|"
    assert shown("%R", value=None) == b"\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("%x", "%x is no token"),
        ("a%", "% is no token"),
        (r"\q", "is no escape"),
        ("\\", "is no escape"),
        (r"\x1", "no escape"),
        ("", "empty"),
    ],
)
def test_what_is_no_format_is_refused(cluster: MockCluster, text: str, part: str) -> None:
    done = run(cluster, "read", "t", "-f", text)
    assert done.exit_code == 2 and part in done.stderr and done.stderr.count("\n") == 1


def test_records_are_printed_so_and_escaped_unless_raw(cluster: MockCluster) -> None:
    write(cluster, "t", [b"a\n\x1b", None], key=b"k", partition=1)
    assert run(cluster, "read", "t", "-f", r"%p@%o %k:%s\n").stdout == "1@0 k:a\\n\\x1b\n1@1 k:\\N\n"
    assert run(cluster, "read", "t", "-f", "%s;", "--raw").stdout_bytes == b"a\n\x1b;;"
    assert run(cluster, "read", "t", "-f", "%s;", "--hex").stdout == "610a1b;\\N;"
    assert run(cluster, "tail", "t", "--from", "beginning", "-n", "1", "--format", "%S").stdout == "3"


@pytest.mark.parametrize("option", ["--json", "-k", "-H", "-v"])
def test_options_that_say_the_same_are_refused(cluster: MockCluster, option: str) -> None:
    done = run(cluster, "read", "t", "-f", "%s", option)
    assert done.exit_code == 2 and "leave --json" in done.stderr
