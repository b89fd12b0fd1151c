"""Names and addresses, without questions beyond this machine."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from both_loops import Run, both_loops

from aiokprod.cluster.dialing import dns
from aiokprod.cluster.dialing.dns import (
    Address,
    canonical_name,
    canonical_servers,
    resolve,
)
from aiokprod.cluster.hosts import is_ip
from aiokprod.errors import ConnectionLostError


def v4(host: str, port: int) -> Address:
    return Address(socket.AF_INET, (host, port))


@pytest.mark.parametrize(
    ("host", "family", "numeric"),
    [
        ("127.0.0.1", socket.AF_INET, "127.0.0.1"),
        ("::1", socket.AF_INET6, "::1"),
        ("[::1]", socket.AF_INET6, "::1"),
    ],
)
@both_loops
def test_literals_resolve_to_themselves(run: Run, host: str, family: socket.AddressFamily, numeric: str) -> None:
    async def scenario() -> None:  # faults: N18
        (address,) = await resolve(host, 9092)
        assert (address.family, address.socket_address[:2]) == (family, (numeric, 9092))

    run(scenario())


@both_loops
def test_a_name_resolves_to_distinct_addresses(run: Run) -> None:
    async def scenario() -> None:
        addresses = await resolve("localhost", 9092)
        assert v4("127.0.0.1", 9092) in addresses
        assert len(set(addresses)) == len(addresses)

    run(scenario())


@pytest.mark.parametrize("host", ["no-such-name.invalid", "a" * 64 + ".invalid", ".", "bad..name"])
@both_loops
def test_a_name_without_an_address_is_a_typed_error(run: Run, host: str) -> None:  # faults: N17
    async def scenario() -> None:
        with pytest.raises(ConnectionLostError) as raised:
            await resolve(host, 9092)
        assert str(raised.value).startswith(f"{host}:9092: the name")
        assert (raised.value.host, raised.value.port) == (host, 9092)

    run(scenario())


def test_resolving_happens_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:  # faults: N17
    threads: list[int] = []
    real = socket.getaddrinfo

    def watched(*arguments: Any, **options: Any) -> Any:
        threads.append(threading.get_ident())
        return real(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", watched)
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:  # uvloop resolves in threads of its own
        runner.run(_resolve_localhost())
    assert threads
    assert threading.get_ident() not in threads


async def _resolve_localhost() -> None:
    await resolve("localhost", 9092)


def test_a_machine_without_threads_has_no_addresses_now() -> None:  # faults: N21
    class Loop(asyncio.SelectorEventLoop):
        async def getaddrinfo(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("can't start new thread")

        async def getnameinfo(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("can't start new thread")

    async def scenario() -> None:
        with pytest.raises(ConnectionLostError, match="can't start new thread"):
            await resolve("localhost", 9092)
        assert await canonical_name(v4("127.0.0.1", 9092)) is None

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(scenario())


@both_loops
def test_the_canonical_name_of_this_machine_is_found(run: Run) -> None:
    async def scenario() -> None:
        name = await canonical_name(v4("127.0.0.1", 9092))
        assert name is not None
        assert not is_ip(name)

    run(scenario())


@both_loops
def test_an_address_without_a_name_has_none(run: Run) -> None:
    async def scenario() -> None:
        assert await canonical_name(v4("192.0.2.1", 9092)) is None  # TEST-NET-1

    run(scenario())


BOOK = {"alias": ["10.0.0.1", "10.0.0.2"], "again": ["10.0.0.2"], "nameless": ["10.0.0.9"]}
NAMES = {"10.0.0.1": "b1.example", "10.0.0.2": "b2.example"}


async def from_book(host: str, port: int) -> Sequence[Address]:
    if host not in BOOK:
        raise ConnectionLostError(f"{host}:{port}: no such name")
    return [v4(address, port) for address in BOOK[host]]


async def name_from_book(address: Address) -> str | None:
    return NAMES.get(address.socket_address[0])


def expanded(*servers: tuple[str, int]) -> list[tuple[str, int]]:
    return asyncio.run(canonical_servers(servers, resolver=from_book, reverse_resolver=name_from_book))


def test_an_alias_becomes_the_names_behind_it() -> None:
    assert expanded(("alias", 1)) == [("b1.example", 1), ("b2.example", 1)]


def test_the_same_server_twice_counts_once() -> None:
    assert expanded(("alias", 1), ("again", 1), ("again", 2)) == [
        ("b1.example", 1),
        ("b2.example", 1),
        ("b2.example", 2),
    ]


def test_an_address_without_a_name_stands_for_itself() -> None:
    assert expanded(("nameless", 1)) == [("10.0.0.9", 1)]


def test_an_unknown_server_is_left_out() -> None:
    assert expanded(("unknown", 1), ("again", 1)) == [("b2.example", 1)]


def test_when_no_server_is_known_each_is_named() -> None:
    with pytest.raises(ConnectionLostError, match=r"one:1: no such name; two:2: no such name"):
        expanded(("one", 1), ("two", 2))


def test_addresses_show_as_they_are_written() -> None:
    assert str(v4("10.0.0.1", 9092)) == "10.0.0.1:9092"
    assert str(Address(socket.AF_INET6, ("::1", 9092, 0, 0))) == "[::1]:9092"


def test_a_canonical_name_that_forges_lines_is_none() -> None:  # faults: H14
    """The name of an address is chosen by the owner of the address."""

    class Loop(asyncio.SelectorEventLoop):
        async def getnameinfo(self, *_: Any, **__: Any) -> Any:
            return "evil\nERROR forged", "9092"

    async def scenario() -> None:
        assert await canonical_name(v4("192.0.2.1", 9092)) is None

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(scenario())


def test_when_the_program_has_ended_names_are_resolved_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop(asyncio.SelectorEventLoop):
        def run_in_executor(self, *_: Any, **__: Any) -> Any:
            raise RuntimeError("cannot schedule new futures after interpreter shutdown")

    async def scenario() -> None:
        assert v4("127.0.0.1", 9092) in await resolve("localhost", 9092)
        assert await canonical_name(v4("127.0.0.1", 9092)) == socket.getnameinfo(("127.0.0.1", 9092), 0)[0]

    monkeypatch.setattr(dns, "has_ended", lambda: True)
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(scenario())
