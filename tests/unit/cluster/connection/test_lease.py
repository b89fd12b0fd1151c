"""How long a connection is kept: pure."""

from __future__ import annotations

import pytest
from fake_connection import FakeConnection

from aiokprod.cluster.connection.lease import DRAIN_POLL_S, Drain, End, Keep, Lease


def lease(connection: FakeConnection, random01: float = 0.5) -> Lease:
    return Lease(connection, 0.0, random01)  # type: ignore[arg-type]


def connection(*, idle_since: float | None = 0.0, expires_at: float | None = None) -> FakeConnection:
    made = FakeConnection()
    made.idle_since = idle_since
    made.in_flight = 0 if idle_since is not None else 1
    made.expires_at = expires_at
    return made


def test_a_fresh_connection_is_looked_at_when_it_may_be_idle() -> None:
    assert lease(connection()).look(0.0, 540.0) == Keep(540.0)


def test_a_busy_connection_is_never_idle() -> None:
    assert lease(connection(idle_since=None)).look(9999.0, 540.0) == Keep(9999.0 + 540.0)


def test_an_idle_connection_ends() -> None:
    assert isinstance(lease(connection()).look(540.0, 540.0), End)


def test_a_negative_idle_time_keeps_it() -> None:
    assert lease(connection()).look(9999.0, -0.001) == Keep(None)


@pytest.mark.parametrize(("random01", "renewed_at"), [(0.0, 85.0), (0.5, 90.0), (1.0, 95.0)])
def test_credentials_are_renewed_at_85_to_95_percent_of_their_life(random01: float, renewed_at: float) -> None:
    held = lease(connection(expires_at=100.0), random01)
    assert held.look(0.0, -1) == Keep(pytest.approx(renewed_at))
    assert held.is_usable
    assert isinstance(held.look(renewed_at + 0.001, -1), End)


def test_a_busy_connection_drains_muted_until_its_credentials_expire() -> None:
    held = lease(connection(idle_since=None, expires_at=100.0))
    assert held.look(96.0, 540.0) == Drain(96.0 + DRAIN_POLL_S)
    assert not held.is_usable
    assert isinstance(held.look(100.0, 540.0), End)


def test_a_removed_broker_drains_unmuted() -> None:
    held = lease(connection(idle_since=None))
    held.leaving = "gone"
    assert held.look(5.0, 540.0) == Drain(5.0 + DRAIN_POLL_S)
    held.connection.in_flight = 0  # type: ignore[misc]
    assert held.look(6.0, 540.0) == End("gone")
