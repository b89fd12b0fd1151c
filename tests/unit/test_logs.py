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
