"""Warnings of the library beside the lines of a command."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import pytest

from aiokprod.cli.common.log_lines import HELD_S, log_lines
from aiokprod.errors import AuthenticationError, BootstrapError, TlsError, UnknownTopicError

LOG = logging.getLogger("aiokprod")


class Clock:
    """A clock that a test sets."""

    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def told_by(
    work: Callable[[list[str], Clock], None],
    error: type[BaseException] | None = None,
    handlers: Sequence[logging.Handler] = (),
) -> list[str]:
    """Run the work; return the lines that were told.

    Args:
        work: is given the list of lines, and the clock.
        error: which it raises.
        handlers: of the program, in place of those of pytest.
    """
    lines: list[str] = []
    clock = Clock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LOG, "propagate", False)
        patch.setattr(LOG, "handlers", [*handlers])
        with nullcontext() if error is None else pytest.raises(error), log_lines(lines.append, clock):
            work(lines, clock)
        assert LOG.handlers == [*handlers]
    return lines


def test_a_warning_is_held_back_for_as_long_as_a_start_takes() -> None:
    def work(lines: list[str], clock: Clock) -> None:
        LOG.warning("%s is late", "a broker")
        LOG.info("not told")
        clock.now_s += HELD_S - 0.1
        LOG.warning("still late")
        assert lines == []
        clock.now_s += 0.2
        LOG.warning("later")
        assert lines == ["a broker is late", "still late", "later"]
        LOG.warning("at once")
        assert lines[3:] == ["at once"]

    assert len(told_by(work)) == 4


def test_what_is_held_back_is_told_when_the_command_ends() -> None:
    assert told_by(lambda lines, clock: LOG.warning("once")) == ["once"]


def test_what_is_held_back_is_not_told_if_the_command_has_done_its_work() -> None:
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LOG, "propagate", False)
        patch.setattr(LOG, "handlers", [])
        with log_lines(lines.append) as warnings:
            LOG.warning("the topic is missing")
            warnings.forget_held()
    assert lines == []


def test_beside_an_error_of_the_start_no_warning_says_the_same() -> None:
    def work(lines: list[str], clock: Clock) -> None:
        LOG.warning("no answer")
        raise BootstrapError("no cluster was found")

    assert told_by(work, BootstrapError) == []


@pytest.mark.parametrize("error", [UnknownTopicError("no topic"), SystemExit(1)])
def test_beside_another_end_warnings_are_told(error: BaseException) -> None:
    def work(lines: list[str], clock: Clock) -> None:
        LOG.warning("a broker is gone")
        raise error

    assert told_by(work, type(error)) == ["a broker is gone"]


def test_a_program_that_has_set_up_logging_gets_its_lines_itself() -> None:
    heard: list[str] = []

    class Own(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            heard.append(record.getMessage())

    assert told_by(lambda lines, clock: LOG.warning("a broker is late"), handlers=[Own()]) == []
    assert heard == ["a broker is late"]


@pytest.mark.parametrize("error", [BootstrapError, TlsError, AuthenticationError])
def test_an_error_of_a_connection_says_what_is_held_back(error: type[Exception]) -> None:
    def work(_lines: list[str], _clock: Clock) -> None:
        LOG.warning("a bootstrap server cannot be used")
        raise error("no")

    assert told_by(work, error) == []


def test_what_is_warned_of_twice_is_told_once() -> None:
    def work(_lines: list[str], _clock: Clock) -> None:
        for number in (1, 1, 2, 1):
            LOG.warning("warning %d", number)

    assert told_by(work) == ["warning 1", "warning 2"]
