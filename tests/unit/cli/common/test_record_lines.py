"""A record as a line of JSON, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.cli.common.record_lines import LineError, Outgoing, json_of, record_of

BYTES = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace"))
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
RECORDS = st.builds(
    Outgoing,
    value=BYTES,
    key=BYTES,
    headers=st.lists(st.tuples(NAMES, BYTES), max_size=4).map(tuple),
    topic=st.just("t"),
    partition=st.none() | st.integers(0, 9),
    timestamp_ms=st.none() | st.integers(0, 2**62),
)


@given(RECORDS, st.booleans(), st.integers(0, 2**62))
def test_a_line_has_the_whole_record(record: Outgoing, in_hex: bool, offset: int) -> None:
    line = json_of(
        "t", record.partition, record.timestamp_ms, record.key, record.value, record.headers,
        offset=offset, in_hex=in_hex, error="why", may_be_in_log=True,
    )  # fmt: skip
    assert line.isprintable()
    assert record_of(line) == record
    assert record_of(line.encode()) == record


def test_text_is_text_and_other_bytes_are_base64_or_hex() -> None:
    line = json.loads(json_of("t", 0, -1, b"\xff", "é".encode(), (("h", None), ("h", b"1")), offset=7))
    assert line == {
        "topic": "t", "partition": 0, "offset": 7, "timestamp": None, "key": {"base64": "/w=="}, "value": "é",
        "headers": [["h", None], ["h", "1"]],
    }  # fmt: skip
    assert json.loads(json_of("t", 0, 1, b"\xff", b"v", (), in_hex=True))["value"] == {"hex": "76"}


def test_a_line_may_be_short_and_its_headers_an_object() -> None:
    assert record_of('{"value": null}') == Outgoing(None)
    assert record_of('{"value": "v", "headers": {"a": "1", "b": null}}').headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("{", "not JSON: Expecting property"), (b"\xff", "not JSON: not UTF-8"), ("[" * 100_000, "not JSON: nested too deeply"),
        ("9" * 5_000, "not JSON: a number with too many digits"), ("7", "not a JSON object"),
        ('{"vlaue": "v"}', "the field 'vlaue' is unknown"), ('{"key": "k"}', "the field 'value' is missing"),
        ('{"value": 7}', "value must be a text, null"), ('{"value": {"base64": "!"}}', "value must be"),
        ('{"value": {"hex": "0"}}', "value must be"), ('{"value": {"base64": "", "hex": ""}}', "value must be"),
        ('{"value": "\\ud800"}', "value must be"), ('{"value": "v", "key": []}', "key must be"),
        ('{"value": "v", "partition": "0"}', "partition must be a whole number"),
        ('{"value": "v", "partition": true}', "partition must be a whole number"),
        ('{"value": "v", "timestamp": 1.5}', "timestamp must be a whole number"),
        ('{"value": "v", "topic": 1}', "topic must be a text"), ('{"value": "v", "headers": 1}', "headers must be"),
        ('{"value": "v", "headers": [["a"]]}', "headers must be"), ('{"value": "v", "headers": [[1, "a"]]}', "headers"),
        ('{"value": "v", "headers": [["a", 1]]}', "a header must be"),
    ],
)  # fmt: skip
def test_a_line_that_is_no_record_says_why(line: str | bytes, text: str) -> None:
    with pytest.raises(LineError, match=text.replace("[", r"\[")):
        record_of(line)
