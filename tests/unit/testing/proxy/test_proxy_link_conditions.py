"""How far brokers are, and at which address of this machine the proxy stands before them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from aiokprod.testing.proxy import Direction, Distance, FaultProxy
from aiokprod.testing.proxy.link_conditions import LEAST_RETRANSMISSION_S, SEGMENT_BYTES, LinkConditions

REQUEST, ANSWER = Direction.REQUEST, Direction.ANSWER
MEGABIT = 1e6 / 8


def conditions_of(distance: Distance) -> LinkConditions:
    conditions = LinkConditions()
    conditions.set_distance(distance)
    return conditions


def test_next_door_everything_arrives_at_once() -> None:
    conditions = LinkConditions()
    assert conditions.arrival_s(REQUEST, 10_000_000, 5.0) == 5.0
    conditions.set_distance(Distance(delay_s=0.1))
    assert conditions.arrival_s(REQUEST, 1, 5.0) == 5.1
    conditions.set_distance(None)
    assert conditions.arrival_s(REQUEST, 10_000_000, 5.0) == 5.0


def test_what_is_written_waits_for_what_was_written_before_in_its_own_way_only() -> None:
    conditions = conditions_of(Distance(delay_s=0.1, bytes_per_s=1000))
    assert conditions.arrival_s(REQUEST, 500, 1.0) == pytest.approx(1.0 + 0.5 + 0.1)
    assert conditions.arrival_s(REQUEST, 500, 1.0) == pytest.approx(1.0 + 1.0 + 0.1)
    assert conditions.arrival_s(ANSWER, 500, 1.0) == pytest.approx(1.0 + 0.5 + 0.1)
    assert conditions.arrival_s(REQUEST, 500, 9.0) == pytest.approx(9.0 + 0.5 + 0.1), "the link is free again"


def test_one_segment_in_a_hundred_is_lost_and_comes_a_retransmission_later_the_same_ones_for_a_seed() -> None:
    def late(seed: int) -> list[bool]:
        conditions = conditions_of(Distance(delay_s=0.1, loss=0.01, seed=seed))
        at = [conditions.arrival_s(REQUEST, SEGMENT_BYTES, 0.0) for _ in range(20_000)]
        assert sorted(set(at)) == [0.1, pytest.approx(0.1 + 2 * 0.1 + LEAST_RETRANSMISSION_S)]
        assert (conditions.segments, conditions.lost) == (20_000, sum(each > 0.1 for each in at))
        return [each > 0.1 for each in at]

    assert late(1) == late(1) != late(2)
    assert 140 < sum(late(1)) < 260


@pytest.mark.parametrize("wrong", [{"delay_s": -1}, {"delay_s": 0, "loss": 1}, {"delay_s": 0, "bytes_per_s": 0}])
def test_a_distance_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="no delay below 0"):
        Distance(**wrong)  # type: ignore[arg-type]


@asynccontextmanager
async def echoed() -> AsyncIterator[FaultProxy]:
    """Yield a proxy before a server that sends back whatever it receives."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                writer.write(data)
        finally:
            writer.close()
            ended.set()

    ended = asyncio.Event()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    try:
        async with FaultProxy({1: server.sockets[0].getsockname()[:2]}, framed=False) as proxy:
            yield proxy
        await ended.wait()
        await asyncio.sleep(0)  # its socket is closed
    finally:
        server.close()


def test_over_a_slow_link_bytes_arrive_late_whole_and_in_order() -> None:
    async def scenario() -> None:
        async with echoed() as proxy:
            reader, writer = await asyncio.open_connection(*proxy.address(1))
            data = bytes(range(256)) * 400
            loop = asyncio.get_running_loop()
            proxy.set_distance(1, Distance(delay_s=0.05, bytes_per_s=1_000_000, loss=0.05, seed=3))
            began = loop.time()
            writer.write(data)
            assert await reader.readexactly(len(data)) == data
            assert loop.time() - began > 2 * 0.05 + len(data) / 1_000_000
            segments, lost = proxy.segments(1)
            assert segments >= 2 * len(data) // SEGMENT_BYTES
            assert lost > 0

            writer.write(b"x" * 50_000)  # on its way when the link becomes fast: what follows does not overtake it
            assert await reader.readexactly(1) == b"x"
            proxy.set_distance(1, None)
            writer.write(b"y")
            assert await reader.readexactly(50_000) == b"x" * 49_999 + b"y"
            writer.close()
            await writer.wait_closed()

    asyncio.run(scenario())


def test_the_end_of_the_requests_arrives_behind_what_is_still_on_its_way() -> None:
    async def scenario() -> None:
        complaints: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, told: complaints.append(told))
        arrived: asyncio.Future[bytes] = loop.create_future()

        async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            arrived.set_result(await reader.read())
            writer.close()

        server = await asyncio.start_server(listen, "127.0.0.1", 0)
        async with server, FaultProxy({1: server.sockets[0].getsockname()[:2]}, framed=False) as proxy:
            proxy.set_distance(1, Distance(delay_s=0.05, bytes_per_s=1_000_000))
            _, writer = await asyncio.open_connection(*proxy.address(1))
            writer.write(b"x" * 50_000)
            writer.write_eof()
            assert await arrived == b"x" * 50_000
            writer.close()
            await writer.wait_closed()
        assert not complaints

    asyncio.run(scenario())


def test_a_proxy_that_moves_is_found_at_its_new_address_only() -> None:
    async def scenario() -> None:
        async with echoed() as proxy:
            host, port = proxy.address(1)
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"a")
            assert await reader.readexactly(1) == b"a"
            assert proxy.move("127.0.0.2") == 1
            with pytest.raises(ConnectionError):
                await reader.readexactly(1)
            writer.close()
            with pytest.raises(OSError, match="onnect"):
                await asyncio.open_connection(host, port)
            assert proxy.address(1) == ("127.0.0.2", port)
            assert proxy.bootstrap_servers == f"127.0.0.2:{port}"
            reader, writer = await asyncio.open_connection("127.0.0.2", port)
            writer.write(b"b")
            assert await reader.readexactly(1) == b"b"
            writer.close()
            await writer.wait_closed()

    asyncio.run(scenario())
