"""Ports that stay ours while a broker is down."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.ports import HIGHEST_PORT, LOWEST_PORT, PortReservation, is_free


@pytest.fixture(autouse=True)
def own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_ports_are_free_distinct_and_below_those_of_outgoing_connections() -> None:
    reservation = PortReservation()
    ports = [reservation.take() for _ in range(20)]
    reservation.release()
    assert len(set(ports)) == 20
    assert all(LOWEST_PORT <= port < HIGHEST_PORT and is_free(port) for port in ports)
    ephemeral = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if ephemeral.exists():
        assert int(ephemeral.read_text().split()[0]) >= HIGHEST_PORT


def test_two_reservations_with_the_same_luck_get_different_ports_until_one_is_released() -> None:
    first, second, third = (PortReservation(random.Random(7)) for _ in range(3))
    port = first.take()
    assert second.take() != port
    first.release()
    assert third.take() == port
    second.release()
    third.release()


def test_a_port_somebody_listens_on_is_not_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert not is_free(listener.getsockname()[1])


def test_no_port_left_is_an_error_that_says_so() -> None:
    class Stuck(random.Random):
        def randrange(self, *arguments: object) -> int:  # type: ignore[override]
            return LOWEST_PORT

    reservation = PortReservation(Stuck())
    with pytest.raises(KafkaClusterError, match="no free port"):
        for _ in range(2):
            reservation.take()
    reservation.release()
