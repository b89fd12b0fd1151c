"""The steps of the nemesis, on a cluster that writes them down; names and certificates of a soak."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from certificates import Certificates, is_shown
from evidence import Done
from names import ADDRESSES, NAME, NamingLoop
from nemesis import Nemesis
from plan import Injection, Plan, Round
from profiles import LOGIN, ONE, PLAIN, TLS

from aiokprod.testing.kafka_cluster.admin import PartitionState


class Broker:
    def __init__(self, cluster: Cluster, node: int) -> None:
        self._cluster, self._node = cluster, node
        self.node = SimpleNamespace(bound={TLS: 900 + node})

    def __getattr__(self, name: str) -> Callable[..., None]:
        def noted(*given: object, **named: object) -> None:
            self._cluster.done.append(f"{name} {self._node}")
            if name == "kill":
                self._cluster.controller = self._node % 3 + 1
            if name == "pause":
                self._cluster.in_sync = tuple(each for each in (1, 2, 3) if each != self._node)

        return noted


class Proxy:
    def __init__(self) -> None:
        self.count = 0
        self.hosts: list[str] = []

    def connections(self) -> int:
        self.count += 1  # each question sees one more
        return self.count

    def move(self, host: str) -> int:
        self.hosts.append(host)
        return 4


class Cluster:
    """A cluster that notes what is done to it."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.controller = 2
        self.in_sync: tuple[int, ...] = (1, 2, 3)
        self.brokers = {node: Broker(self, node) for node in (1, 2, 3)}
        self.broker = self.brokers.__getitem__
        self.proxies = {name: Proxy() for name in (PLAIN, LOGIN, TLS)}
        self.admin = self

    def active_controller(self) -> int:
        return self.controller

    def topic(self, name: str) -> list[PartitionState]:
        assert name == ONE
        return [PartitionState(leader=1, leader_epoch=1, replicas=(1, 2, 3), in_sync=self.in_sync)]

    def wait_ready(self) -> None:
        pass

    def wait_all_in_sync(self, topic: str) -> None:
        self.in_sync = (1, 2, 3)

    def alter_client_quota(self, client_id: str, quotas: dict[str, float | None]) -> None:
        self.done.append(f"{client_id} {quotas}")


class Client:
    name = "five"

    def __init__(self) -> None:
        self.told: list[str] = []

    def resolve(self, address: str) -> None:
        self.told.append(address)


class Once(Plan):
    """A plan of one fault."""

    def __init__(self, kind: str) -> None:
        self._kind = kind

    def next_round(self, share_done: float) -> Round:
        injection = Injection(kind=self._kind, node=1, client=0, seconds=2.5, chance=1.0, seed=5)
        return Round(gap_s=0.0, injections=(injection,))


def do(kind: str, cluster: Cluster, client: Client | None = None) -> tuple[Done, list[float]]:
    paused: list[float] = []
    nemesis = Nemesis(
        cast("Any", cluster), [cast("Any", client or Client())], Once(kind), cast("Any", None), paused.append
    )
    nemesis._round(Once(kind).next_round(0.0))
    (done,) = nemesis.done
    assert done.failure is None, done.failure
    return done, paused


def test_the_controller_that_is_active_is_killed() -> None:
    cluster = Cluster()
    done, paused = do("kill controller", cluster)
    assert cluster.done == ["kill 2", "start 2"]
    assert paused == [2.5]
    assert (done.met, done.text) == (1, "kill -9 [2], down 2.5 s; it was the active controller, now that is 3")


def test_a_follower_is_stopped_until_the_isr_is_without_it() -> None:
    cluster = Cluster()
    done, _ = do("shrink isr", cluster)
    stopped = cluster.done[0]
    assert stopped in {"pause 2", "pause 3"}, "not the leader"
    assert cluster.done == [stopped, stopped.replace("pause", "resume")]
    assert done.met == 1
    assert cluster.in_sync == (1, 2, 3)


@pytest.mark.parametrize(("kind", "count"), [("terminate", 1), ("terminate two", 2), ("terminate all", 3)])
def test_brokers_are_asked_to_end_and_come_back(kind: str, count: int) -> None:
    cluster = Cluster()
    done, _ = do(kind, cluster)
    verbs = [each.split()[0] for each in cluster.done]
    assert verbs == ["stop"] * count + ["start"] * count
    assert len(set(cluster.done)) == 2 * count
    assert done.met == count


def test_a_quota_is_set_and_taken_off() -> None:
    cluster = Cluster()
    done, paused = do("quota", cluster)
    assert cluster.done == ["five {'producer_byte_rate': 60000.0}", "five {'producer_byte_rate': None}"]
    assert paused[0] == 2.5
    assert done.client == "five"


def test_brokers_move_to_the_other_address_and_clients_are_told_later() -> None:
    cluster, client = Cluster(), Client()
    done, paused = do("change address", cluster, client)
    assert [proxy.hosts for proxy in cluster.proxies.values()] == [[ADDRESSES[1]]] * 3
    assert client.told == [ADDRESSES[1]]
    assert paused == [2.5]
    assert done.met == 3, "one new connection to each listener"
    assert "12 connections ended" in done.text


def test_the_name_has_the_address_that_it_is_given_and_others_have_their_own() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, NamingLoop)

        async def found(host: str) -> str:
            return str((await loop.getaddrinfo(host, 9092, type=socket.SOCK_STREAM))[0][4][0])

        assert await found(NAME) == "127.0.0.1"
        loop.address = "127.0.0.2"
        assert await found(NAME) == "127.0.0.2"
        assert await found("127.0.0.9") == "127.0.0.9"

    with asyncio.Runner(loop_factory=NamingLoop) as runner:
        runner.run(scenario())


@contextmanager
def serving(path: Path) -> Iterator[tuple[str, int]]:
    """Serve this certificate to one client."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with context.wrap_socket(connection, server_side=True):
                pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[:2]
        thread.join()


def test_a_certificate_is_known_where_it_is_shown(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path)
    first, second = certificates.files.broker_certificate, certificates.issue()
    with serving(first) as address:
        assert is_shown(first, address)
    with serving(first) as address:
        assert not is_shown(second, address)
