"""Log lines: escaped, limited, in one grammar."""

from __future__ import annotations

import asyncio
import io
import logging
import re
import subprocess
import sys
from typing import Any

import pytest

from aiokprod import logs
from aiokprod.errors import UndeliveredAtCloseError
from aiokprod.logs import GuardedLogger, Pace, RateLimiter, StateLog, printable


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


def test_the_quiet_time_of_a_warning_that_goes_on_doubles_up_to_a_minute() -> None:
    limiter = RateLimiter(5.0)
    told = [at for at in range(200) if limiter.pass_on("lost", float(at), longest_s=60.0) is not None]
    assert told == [0, 5, 15, 35, 75, 135, 195]
    assert limiter.pass_on("lost", 1_000.0, longest_s=60.0) == " (repeated 4 times in 805 s)"
    assert limiter.pass_on("lost", 1_005.0, longest_s=60.0) == ""


def test_a_producer_that_ends_tells_its_losses_in_one_line(caplog: pytest.LogCaptureFixture) -> None:
    log = StateLog("producer")
    log.is_gathering = True
    for _ in range(3):
        log.records_lost(UndeliveredAtCloseError("closed", topic="t"), 1)
    assert not caplog.records
    log.tell_held()
    [record] = caplog.records
    assert record.getMessage().startswith("producer: 3 records failed that no caller awaited")
    log.records_lost(UndeliveredAtCloseError("closed", topic="u"), 1)
    assert len(caplog.records) == 2


def test_a_trouble_that_lasts_is_told_at_once_then_after_5_s_and_each_time_after_twice_as_long_up_to_a_minute() -> None:
    pace = Pace()
    told = [(at, text) for at in range(300) if (text := pace.passes(float(at))) is not None]
    assert [at for at, _ in told] == [0, 5, 15, 35, 75, 135, 195, 255]
    assert told[:3] == [(0, ""), (5, " (repeated 4 times in 5 s)"), (15, " (repeated 9 times in 10 s)")]
    assert pace.passes(1_000.0) == " (repeated 44 times in 745 s)"
    assert pace.passes(1_005.0) == ""  # it was calm for long: the interval begins again


def test_the_end_of_a_trouble_is_a_warning_and_no_error_that_is_remembered(caplog: pytest.LogCaptureFixture) -> None:
    log = StateLog("producer", client_id="web-1")
    log.warned_now("a batch has failed", topic="orders", error="NOT_ENOUGH_REPLICAS")
    log.announced("batches do not fail any more", topic="orders")
    assert [record.getMessage() for record in caplog.records] == [
        "producer [web-1]: a batch has failed",
        "producer [web-1]: batches do not fail any more",
    ]
    assert [vars(record)["kafka_error"] for record in caplog.records] == ["NOT_ENOUGH_REPLICAS", None]
    assert log.last_error == "a batch has failed"


def test_kinds_are_limited_apart_from_each_other() -> None:
    limiter = RateLimiter(5.0)
    assert limiter.pass_on("lost", 100.0) == ""
    assert limiter.pass_on("refused", 100.0) == ""


def test_a_flood_of_kinds_is_as_many_lines_as_are_remembered_and_one() -> None:  # faults: H16
    limiter = RateLimiter(5.0)
    told = [limiter.pass_on(f"dial {number}", 100.0 + turn) for turn in range(4) for number in range(5_000)]
    assert sum(text is not None for text in told) == logs.KINDS_LIMIT + 1
    assert [limiter.pass_on(f"dial {number}", 105.5) for number in range(2)] == [" (repeated 3 times in 6 s)"] * 2
    assert limiter.pass_on("dial 4000", 105.5) == ""  # the place of the oldest one


def test_a_kind_that_has_no_place_tells_of_those_before_it_that_had_none() -> None:
    limiter = RateLimiter(5.0)
    for number in range(logs.KINDS_LIMIT + 10):
        limiter.pass_on(f"dial {number}", 98.0)
    for number in range(logs.KINDS_LIMIT):
        limiter.pass_on(f"dial {number}", 103.0)
    assert limiter.pass_on("dial 9999", 104.0) == " (and 9 others like it in 6 s)"
    assert limiter.pass_on("dial 9999", 105.0) is None


def test_a_move_names_the_partition_both_brokers_and_the_reason(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="aiokprod"):
        StateLog("producer", client_id="web-1").moved("NEW", "STARTING", "start() was called")
    [record] = caplog.records
    assert record.getMessage() == "producer [web-1]: NEW -> STARTING because start() was called"
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


def lost_counts(caplog: pytest.LogCaptureFixture) -> list[int]:
    return [int(record.getMessage().split()[1]) for record in caplog.records if "no caller awaited" in record.msg]


class Outcome(BaseException):
    """An outcome that a test framework raises, whose `fail` is no Exception."""


@pytest.mark.parametrize("kind", [ValueError, Outcome, asyncio.CancelledError])
@pytest.mark.parametrize("raises", ["filter", "record factory"])
def test_what_a_filter_or_a_record_factory_raises_stays_in_the_line(
    raises: str,
    kind: type[BaseException],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise kind("broken")

    logger = logging.getLogger("aiokprod")
    factory = logging.getLogRecordFactory()
    logger.addFilter(broken) if raises == "filter" else logging.setLogRecordFactory(broken)
    try:
        log = StateLog("producer")
        log.moved("NEW", "STARTING", "start() was called")
        log.failed(ValueError("x"))
        log.hook_failed("acknowledged()", ValueError("x"))
        log.lost_with_loop("lost")
        log.records_lost(UndeliveredAtCloseError("closed", topic="t"), 3)
        log.tell_held()
    finally:
        logger.removeFilter(broken)
        logging.setLogRecordFactory(factory)
    assert not caplog.records
    assert capsys.readouterr().err.count(f"{kind.__name__}: broken") >= 4
    monkeypatch.setattr(logging, "raiseExceptions", False)  # as in production: handlers are silent too
    logger.addFilter(broken)
    try:
        log.failed(ValueError("x"))
    finally:
        logger.removeFilter(broken)
    assert not capsys.readouterr().err


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_while_a_line_is_written_goes_on(interrupt: type[BaseException]) -> None:
    def interrupted(record: logging.LogRecord) -> bool:
        raise interrupt

    logger = logging.getLogger("aiokprod")
    logger.addFilter(interrupted)
    try:
        with pytest.raises(interrupt):
            StateLog("producer").failed(ValueError("x"))
    finally:
        logger.removeFilter(interrupted)


def test_a_line_that_cannot_be_written_when_stderr_is_closed_costs_nothing_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(record: logging.LogRecord) -> bool:
        raise ValueError("broken")

    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr(sys, "stderr", closed)
    logger = logging.getLogger("aiokprod")
    logger.addFilter(broken)
    try:
        StateLog("producer").failed(ValueError("x"))
    finally:
        logger.removeFilter(broken)


def test_a_line_names_the_module_that_has_something_to_say(caplog: pytest.LogCaptureFixture) -> None:
    log = GuardedLogger("aiokprod.test")
    log.warning("%d of %s", 1, "two")
    log.error("broken", exc_info=ValueError("x"))
    with caplog.at_level(logging.DEBUG, "aiokprod"):
        log.debug("a detail")
        log.info("a fact")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "1 of two"), ("ERROR", "broken"), ("DEBUG", "a detail"), ("INFO", "a fact"),
    ]  # fmt: skip
    assert {record.filename for record in caplog.records} == {"test_logs.py"}


def test_counts_of_lost_records_add_up_when_what_is_held_back_is_told(caplog: pytest.LogCaptureFixture) -> None:
    log = StateLog("producer")
    for number in range(1_000):
        log.records_lost(UndeliveredAtCloseError("closed", topic="t", partition=number % 7), 3)
    log.records_lost(UndeliveredAtCloseError("closed", topic="u"), 5)
    assert log.holds_losses and lost_counts(caplog) == [3, 5]
    log.tell_held()
    assert not log.holds_losses and lost_counts(caplog) == [3, 5, 2_997]
    log.tell_held()
    assert len(lost_counts(caplog)) == 3
    assert {record.__dict__["kafka_topic"] for record in caplog.records} == {"t", "u"}


def test_no_count_is_forgotten_where_there_are_more_kinds_than_are_remembered(caplog: pytest.LogCaptureFixture) -> None:
    log = StateLog("producer")
    for number in range(1_000):
        log.records_lost(UndeliveredAtCloseError("closed", topic=f"t{number % 600}"), 1)
    log.tell_held()
    assert sum(lost_counts(caplog)) == 1_000


def test_losses_in_more_topics_than_are_remembered_are_no_flood(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(logs, "monotonic", lambda: clock[0])
    log = StateLog("producer")
    for number in range(10_000):
        log.records_lost(UndeliveredAtCloseError("closed", topic=f"t{number % 600}"), 1)
    assert len(lost_counts(caplog)) == logs.KINDS_LIMIT + 1
    clock[0] = 106.0
    for number in range(600):
        log.records_lost(UndeliveredAtCloseError("closed", topic=f"u{number}"), 1)
    log.tell_held()
    assert sum(lost_counts(caplog)) == 10_600
    assert len(lost_counts(caplog)) <= 4 * (logs.KINDS_LIMIT + 1)


def test_counts_held_back_are_told_with_the_next_line_that_is_let_through(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(logs, "monotonic", lambda: clock[0])
    log = StateLog("producer")
    for clock[0] in (100.0, 101.0, 104.0, 106.0):
        log.records_lost(UndeliveredAtCloseError("closed", topic="t"), 2)
    assert lost_counts(caplog) == [2, 6]


@pytest.mark.parametrize("configured", [True, False])
def test_an_error_reaches_stderr_once_whether_logging_is_configured_or_not(configured: bool) -> None:
    program = f"""
import asyncio, logging
from aiokprod.testing import MemoryProducer
if {configured}:
    logging.basicConfig()

async def main():
    async with MemoryProducer(auto_create=False) as producer:
        for _ in range(100):
            producer.send("nowhere", b"v")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "")
    lines = [line for line in done.stderr.splitlines() if "no caller awaited" in line]
    assert sum(int(re.findall(r"(\d+) records? failed", line)[0]) for line in lines) == 100
    assert "STARTING" not in done.stderr  # of INFO nothing shows that was not asked for


def test_a_burst_of_failures_is_counted_and_not_written_out_one_by_one() -> None:
    """A broker may name thousands of records in one answer; the text of each would hold the loop."""
    written: list[int] = []

    class Spelled(UndeliveredAtCloseError):
        def __str__(self) -> str:
            written.append(1)
            return super().__str__()

    log = StateLog("producer")
    for number in range(1_000):
        log.records_lost(Spelled(f"number {number}", topic="t"), 1)
    assert len(written) == 2, "the first of all, and the first of those that are held back"
    assert log.last_error is not None and "number 1" in log.last_error
    log.tell_held()
    assert len(written) == 2
