"""Ports that stay ours while a broker is down."""

from __future__ import annotations

import os
import random
import socket
import stat
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


def test_a_port_with_a_listener_is_not_free() -> None:
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


def test_locks_are_in_a_directory_that_is_this_users_alone(tmp_path: Path) -> None:
    reservation = PortReservation()
    port = reservation.take()
    directory = tmp_path / f"aiokprod-ports-{os.getuid()}"
    assert [each.name for each in directory.iterdir()] == [str(port)]
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((directory / str(port)).stat().st_mode) == 0o600
    reservation.release()


def test_a_link_in_the_place_of_the_directory_is_refused_and_nothing_behind_it_changes(tmp_path: Path) -> None:
    behind = tmp_path / "behind"
    behind.mkdir(mode=0o755)
    (tmp_path / f"aiokprod-ports-{os.getuid()}").symlink_to(behind)
    with pytest.raises(KafkaClusterError, match="is not a directory that only its owner, this user, can write to"):
        PortReservation().take()
    assert stat.S_IMODE(behind.stat().st_mode) == 0o755
    assert list(behind.iterdir()) == []


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o720])
def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    directory = tmp_path / f"aiokprod-ports-{os.getuid()}"
    directory.mkdir()
    directory.chmod(mode)
    with pytest.raises(KafkaClusterError, match="remove it"):
        PortReservation().take()
    assert stat.S_IMODE(directory.stat().st_mode) == mode


def test_a_directory_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / f"aiokprod-ports-{os.getuid() + 1}").mkdir(mode=0o700)
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    with pytest.raises(KafkaClusterError, match="remove it"):
        PortReservation().take()


def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    directory = tmp_path / f"aiokprod-ports-{os.getuid()}"
    directory.mkdir(mode=0o700)
    victim = tmp_path / "victim"
    for port in range(LOWEST_PORT, HIGHEST_PORT):
        (directory / str(port)).symlink_to(victim)
    with pytest.raises(OSError, match="symbolic link"):
        PortReservation().take()
    assert not victim.exists()
