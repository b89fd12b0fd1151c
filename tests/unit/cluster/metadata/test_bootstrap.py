"""The addresses the user gave."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aiokprod.cluster.metadata.bootstrap import BootstrapServers
from aiokprod.errors import ConnectionLostError, ConnectionSetupTimeoutError, ProtocolError


def test_servers_have_negative_ids_that_stay() -> None:
    async def scenario() -> None:
        servers = BootstrapServers([("a", 1), ("b", 2)])
        first = await servers.nodes()
        assert [(node.id, node.host, node.port) for node in first] == [(-1, "a", 1), (-2, "b", 2)]
        assert await servers.nodes() == first
        assert servers.addresses() == [("a", 1, -1), ("b", 2, -2)]

    asyncio.run(scenario())


def test_a_server_given_twice_counts_once() -> None:  # faults: N18
    async def scenario() -> None:
        assert len(await BootstrapServers([("a", 1), ("a", 1)]).nodes()) == 1

    asyncio.run(scenario())


def test_canonical_names_are_looked_up_each_time_and_keep_their_ids() -> None:  # KIP-235
    async def scenario() -> None:
        names = iter([["x", "y"], ["y", "z"]])

        async def expand(given: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
            assert list(given) == [("alias", 9)]
            return [(name, 9) for name in next(names)]

        servers = BootstrapServers([("alias", 9)], expand)
        assert [(node.id, node.host) for node in await servers.nodes()] == [(-1, "x"), (-2, "y")]
        assert [(node.id, node.host) for node in await servers.nodes()] == [(-2, "y"), (-3, "z")]
        servers.failed("y", 9, ConnectionLostError("refused"))
        assert "y:9: refused" in str(servers.error("nothing"))

    asyncio.run(scenario())


def test_names_that_cannot_be_resolved_are_told() -> None:  # faults: N17
    async def scenario() -> None:
        async def expand(given: Sequence[tuple[str, int]]) -> Sequence[tuple[str, int]]:
            raise ConnectionLostError("no such name")

        servers = BootstrapServers([("alias", 9)], expand)
        with pytest.raises(ConnectionLostError):
            await servers.nodes()
        assert "alias:9: no such name" in str(servers.error("nothing"))

    asyncio.run(scenario())


def test_an_error_names_every_address_with_its_cause_told_once() -> None:  # faults: T15
    async def scenario() -> None:
        servers = BootstrapServers([("a", 1), ("b", 2)])
        await servers.nodes()
        cause = ConnectionLostError("a:1: refused", host="a", port=1)
        servers.failed("a", 1, cause)
        error = servers.error("no broker can be reached")
        assert str(error) == "no broker can be reached; tried a:1: refused; b:2: no answer yet"
        assert error.tried[0] == ("a", 1, cause)
        assert error.__cause__ is error.tried[-1][2]
        refused = ConnectionLostError("b:2: cannot connect: Connection refused", host="b", port=2)
        refused.__cause__ = ConnectionRefusedError(111, "Connection refused")
        servers.failed("b", 2, refused)
        error = servers.error("no broker can be reached")
        assert error.tried[-1][2] is refused and refused.message in error.message
        assert error.__cause__ is refused.__cause__, "the chain has two links"

    asyncio.run(scenario())


def test_the_error_has_each_server_as_it_is_given_in_the_options() -> None:
    servers = BootstrapServers([("::1", 1), ("a", 2)])
    servers.failed("::1", 1, ConnectionLostError("[::1]:1: refused", host="::1", port=1))
    assert servers.error("nothing").message == "nothing; tried [::1]:1: refused; a:2: no answer yet"
    assert repr(servers) == "<BootstrapServers [::1]:1, a:2>"


def test_servers_are_unreachable_once_the_last_attempt_at_each_found_no_connection() -> None:
    servers = BootstrapServers([("one", 1), ("other", 2)])
    refused = ConnectionLostError("refused")
    servers.failed("one", 1, refused)
    assert not servers.are_unreachable()
    servers.failed("other", 2, ConnectionSetupTimeoutError("too slow"))
    assert servers.are_unreachable()
    servers.failed("other", 2, ProtocolError("an answer, though not of Kafka"))
    assert not servers.are_unreachable()
