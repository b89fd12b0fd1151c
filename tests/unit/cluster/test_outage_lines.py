"""`OutageLines`: one line for a cluster that is away, one for a broker that is, rarer and rarer, and the end of each."""

from __future__ import annotations

import pytest

from aiokprod.cluster.outage_lines import MOST, OutageLines
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    BootstrapError,
    ConnectionLostError,
    ConnectionSetupTimeoutError,
    TlsError,
)
from aiokprod.logs import StateLog


@pytest.fixture
def log() -> StateLog:
    return StateLog("cluster", client_id="shop")


def texts(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage().removeprefix("cluster [shop]: ") for record in caplog.records]


def test_a_cluster_that_is_away_has_lines_that_become_rare_and_one_at_the_end(
    log: StateLog, caplog: pytest.LogCaptureFixture
) -> None:
    lines = OutageLines(log)
    for at in range(100):
        for node in (1, 2, 3):
            lines.dial_failed(node, ConnectionLostError("refused"), float(at), float(at), is_alone=True)
        lines.metadata_failed(BootstrapError("no broker can be reached"), float(at), float(at))
    assert texts(caplog) == [
        "metadata could not be refreshed: no broker can be reached" + held
        for held in ("", " (repeated 4 times in 5 s)", " (repeated 9 times in 10 s)", " (repeated 19 times in 20 s)",
                     " (repeated 39 times in 40 s)")
    ]  # fmt: skip
    caplog.clear()
    lines.metadata_came(100.0)
    lines.metadata_came(101.0)
    assert texts(caplog) == ["metadata can be refreshed again, after 100.0 s"]
    assert log.last_error == "metadata could not be refreshed: no broker can be reached"


def test_a_second_outage_is_told_within_10_s_and_one_that_flaps_not_each_time(
    log: StateLog, caplog: pytest.LogCaptureFixture
) -> None:
    lines = OutageLines(log)
    for at in range(100):
        lines.metadata_failed(BootstrapError("away"), float(at), float(at))
    lines.metadata_came(100.0)
    caplog.clear()
    lines.metadata_failed(BootstrapError("away"), 101.0, 101.0)
    assert not caplog.records
    lines.metadata_failed(BootstrapError("away"), 111.0, 111.0)
    assert len(caplog.records) == 1
    caplog.clear()
    for at in range(200, 800, 2):
        for failed_at in (at, at + 0.5):
            lines.metadata_failed(BootstrapError("away"), failed_at, failed_at)
        lines.metadata_came(at + 1.0)
    assert len(caplog.records) <= 2 * 60


def test_a_broker_that_is_away_while_others_are_not_has_lines_of_its_own(
    log: StateLog, caplog: pytest.LogCaptureFixture
) -> None:
    lines = OutageLines(log)
    lines.dial_failed(2, ConnectionLostError("refused"), 0.0, 0.0, is_alone=False)
    assert not caplog.records and log.last_error == "broker 2 cannot be used: refused"
    lines.dial_failed(2, ConnectionLostError("refused"), 0.1, 0.1, is_alone=False)
    lines.dial_succeeded(1, 2.0)
    lines.dial_succeeded(2, 3.0)
    assert texts(caplog) == ["broker 2 cannot be used: refused", "broker 2 can be used again, after 3.0 s"]


def test_a_server_that_failed_before_another_one_answered_is_told_then(
    log: StateLog, caplog: pytest.LogCaptureFixture
) -> None:
    lines = OutageLines(log)
    lines.dial_failed(-1, ConnectionLostError("refused", host="a", port=1), 0.0, 0.0, is_alone=True)
    assert not caplog.records and "a bootstrap server cannot be used" in str(log.last_error)
    lines.dial_succeeded(-2, 0.1)
    lines.metadata_came(0.2)
    assert len(caplog.records) == 1 and texts(caplog)[0].startswith("a bootstrap server cannot be used: ")


def test_thousands_of_brokers_share_a_pace(log: StateLog, caplog: pytest.LogCaptureFixture) -> None:  # faults: H16
    lines = OutageLines(log)
    for at in (0.0, 1.0):
        for node in range(5_000):
            lines.dial_failed(node, ConnectionLostError("refused"), at, at, is_alone=False)
    assert len(caplog.records) == MOST + 1


@pytest.mark.parametrize("is_alone", [False, True])
def test_one_attempt_that_fails_right_behind_a_restart_is_not_told(
    is_alone: bool, log: StateLog, caplog: pytest.LogCaptureFixture
) -> None:
    lines = OutageLines(log)
    for at in range(0, 300, 10):
        for began in (at + 0.0, at + 0.001):  # the two connections to the broker
            lines.dial_failed(1, ConnectionLostError("hung up"), began, began + 0.002, is_alone=is_alone)
        error = BootstrapError("away", tried=[("a", 1, ConnectionLostError("hung up"))])
        lines.metadata_failed(error, at + 0.0, at + 0.01)
        lines.metadata_came(at + 0.2)
        lines.dial_succeeded(1, at + 0.3)
    assert not caplog.records


def test_a_second_failure_an_hour_later_is_the_first_one_again(log: StateLog, caplog: pytest.LogCaptureFixture) -> None:
    lines = OutageLines(log)
    for at in (0.0, 3_600.0):
        lines.dial_failed(1, ConnectionLostError("hung up"), at, at, is_alone=False)
    assert not caplog.records


def test_an_attempt_that_takes_long_is_told_when_it_fails(log: StateLog, caplog: pytest.LogCaptureFixture) -> None:
    lines = OutageLines(log)
    lines.dial_failed(1, ConnectionSetupTimeoutError("no answer"), 0.0, 10.0, is_alone=False)
    lines.metadata_failed(BootstrapError("away"), 0.0, 5.0)
    assert texts(caplog) == ["broker 1 cannot be used: no answer", "metadata could not be refreshed: away"]


@pytest.mark.parametrize("error", [AuthenticationError("a wrong password"), TlsError("no certificate")])
def test_what_no_second_attempt_mends_is_told_at_once(
    error: AiokprodError, log: StateLog, caplog: pytest.LogCaptureFixture
) -> None:
    lines = OutageLines(log)
    lines.dial_failed(1, error, 0.0, 0.01, is_alone=False)
    lines.metadata_failed(BootstrapError("none", tried=[("a", 1, error)]), 0.0, 0.02)
    assert len(caplog.records) == 2


def test_a_broker_that_failed_while_no_other_was_connected_is_told_if_it_goes_on(
    log: StateLog, caplog: pytest.LogCaptureFixture
) -> None:
    lines = OutageLines(log)
    lines.dial_failed(1, ConnectionLostError("refused"), 0.0, 0.0, is_alone=True)
    lines.metadata_came(0.1)
    assert not caplog.records
    lines.dial_failed(1, ConnectionLostError("refused"), 0.2, 0.2, is_alone=True)
    lines.metadata_came(0.3)
    lines.dial_succeeded(1, 2.0)
    assert texts(caplog) == ["broker 1 cannot be used: refused", "broker 1 can be used again, after 2.0 s"]
