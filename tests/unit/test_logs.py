"""Log lines: escaped, limited, in one grammar."""

from __future__ import annotations

import logging

import pytest

from aiokprod.logs import RateLimiter, StateLog, printable


def test_terminal_escapes_and_line_breaks_of_others_are_escaped() -> None:
    assert printable("\x1b[31mred\r\nERROR forged") == "\\x1b[31mred\\r\\nERROR forged"


def test_a_long_text_is_cut() -> None:
    assert printable("a" * 50, 10) == "a" * 10 + "..."
    assert printable("a" * 10, 10) == "a" * 10


def test_repetitions_are_held_back_and_then_counted() -> None:
    limiter = RateLimiter(5.0)
    assert limiter.pass_on("lost", 100.0) == ""
    assert limiter.pass_on("lost", 101.0) is None
    assert limiter.pass_on("lost", 104.9) is None
    assert limiter.pass_on("lost", 106.0) == " (repeated 2 times in 6 s)"


def test_kinds_are_limited_apart_from_each_other() -> None:
    limiter = RateLimiter(5.0)
    assert limiter.pass_on("lost", 100.0) == ""
    assert limiter.pass_on("refused", 100.0) == ""


def test_a_move_says_who_from_to_and_because(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="aiokprod"):
        StateLog("producer", client_id="web-1").moved("NEW", "STARTING", "start() was called")
    [record] = caplog.records
    assert record.getMessage() == "producer: NEW -> STARTING because start() was called"
    assert record.__dict__["kafka_client_id"] == "web-1"


def test_a_failure_is_remembered_as_the_last_error() -> None:
    log = StateLog("producer")
    log.failed(OSError("reset\n"))
    assert log.last_error == "OSError: reset\\n"


def test_the_subject_of_a_line_is_escaped_too(caplog: pytest.LogCaptureFixture) -> None:  # faults: H14
    log = StateLog("connection to a\x1b[2J\nERROR forged", broker="a\n" + "b" * 10_000)
    with caplog.at_level(logging.INFO, logger="aiokprod"):
        log.moved("CONNECTING", "OPEN", "x")
        log.warned("kind", "y")
    for record in caplog.records:
        assert "\n" not in record.getMessage()
        assert "\x1b" not in record.getMessage()
        assert "\n" not in record.__dict__["kafka_broker"]
        assert len(record.__dict__["kafka_broker"]) < 1_000


class Mute(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_an_error_without_a_text_can_be_told() -> None:
    log = StateLog("producer")
    log.warned("kind", Mute())
    assert log.last_error == "<Mute whose text raises ValueError>"
