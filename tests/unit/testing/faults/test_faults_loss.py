"""Late, lost and damaged requests and answers, connections and brokers: the same on both targets."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import Any

import pytest
from mock_batches import batch
from mock_client import RawClient
from mock_requests import values
from targets import EVERYWHERE, Target, end_of, eventually, play

from aiokprod.testing.faults import (
    Corrupt,
    Drip,
    Effect,
    Fault,
    HugeLength,
    Rechunk,
    Truncate,
    WrongCorrelation,
)
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse

everywhere = pytest.mark.parametrize("kind", EVERYWHERE)
either_way = pytest.mark.parametrize("before", [True, False], ids=["request", "answer"])


TICK_S = 0.002  # uvloop counts whole milliseconds


def now() -> float:
    return asyncio.get_running_loop().time()


async def is_served(client: RawClient) -> None:
    """Check that the connection serves another request."""
    await client.ask(MetadataRequest(), MetadataResponse, 12)


# ---------------------------------------------------------------------- late
@everywhere
@either_way
def test_a_delay_keeps_what_is_behind_it_and_no_other_connection(kind: str, before: bool) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        async with made.client() as other:
            made.script.delay_next("Produce", 0.05, before_serving=before)
            started = now()
            client.send_produce({("t", 0): batch(b"a")})
            client.send(MetadataRequest(), 12)
            await is_served(other)
            assert not client.has_bytes or now() - started >= 0.05
            assert (await client.produced())["t", 0].error_code == 0
            await client.receive(MetadataResponse, 12)
            assert now() - started >= 0.05 - TICK_S

    play(kind, scenario)


@everywhere
@either_way
def test_what_is_held_comes_in_order_when_it_is_released(kind: str, before: bool) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        rule = made.script.hold("Produce", before_serving=before)
        client.send_produce({("t", 0): batch(b"a")})
        client.send(MetadataRequest(), 12)
        await eventually(lambda: rule.hits == 1)
        assert await client.is_silent()
        assert values(made.cluster) == ([] if before else [b"a"])
        made.script.release(rule)
        assert (await client.produced())["t", 0].base_offset == 0
        await client.receive(MetadataResponse, 12)
        assert (await client.produce("t", batch(b"b"))).base_offset == 1
        assert rule.hits == 1 and rule.is_spent

    play(kind, scenario)


@everywhere
def test_a_disarmed_hold_lets_others_pass_and_keeps_what_it_has(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        rule = made.script.hold("Produce", before_serving=True)
        client.send_produce({("t", 0): batch(b"late")})
        await eventually(lambda: rule.hits == 1)
        rule.disarm()
        async with made.client() as other:
            assert (await other.produce("t", batch(b"early"))).base_offset == 0
        made.script.clear_faults()
        assert (await client.produced())["t", 0].base_offset == 1

    play(kind, scenario)


# ---------------------------------------------------------------------- lost
@everywhere
@pytest.mark.parametrize("reset", [False, True])
@either_way
def test_a_dropped_answer_ends_the_connection(kind: str, before: bool, reset: bool) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.drop_answer("Produce", after_append=not before, reset=reset, topic="t", nth=2)
        assert (await client.produce("t", batch(b"a"))).error_code == 0
        client.send_produce({("t", 0): batch(b"b")})
        assert await end_of(client) == ("reset" if reset else "closed")
        assert values(made.cluster) == ([b"a"] if before else [b"a", b"b"])

    play(kind, scenario)


@everywhere
def test_a_connection_can_end_behind_an_answer(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.close_after("Produce")
        assert (await client.produce("t", batch(b"a"))).base_offset == 0
        assert await end_of(client) == "closed"

    play(kind, scenario)


@everywhere
@either_way
def test_what_is_swallowed_is_missing_and_the_connection_goes_on(kind: str, before: bool) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        rule = made.script.swallow_next("Produce", before_serving=before)
        client.send_produce({("t", 0): batch(b"a")})
        await is_served(client)
        assert rule.hits == 1
        assert values(made.cluster) == ([] if before else [b"a"])
        assert (await client.produce("t", batch(b"b"))).error_code == 0

    play(kind, scenario)


@everywhere
@either_way
def test_behind_a_black_hole_nothing_passes_on_this_connection(kind: str, before: bool) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.blackhole_next("Produce", before_serving=before, nth=2)
        assert (await client.produce("t", batch(b"a"))).error_code == 0
        for value in (b"b", b"c"):
            client.send_produce({("t", 0): batch(value)})
        if not before:
            await eventually(lambda: values(made.cluster) == [b"a", b"b", b"c"])
        assert await client.is_silent()
        assert values(made.cluster) == ([b"a"] if before else [b"a", b"b", b"c"])
        async with made.client() as other:
            assert (await other.produce("t", batch(b"d"))).error_code == 0

    play(kind, scenario)


# ---------------------------------------------------------------------- bytes of answers
async def answer_frame(client: RawClient) -> bytes:
    """Return the next answer as it came, its length included."""
    frame = await client.frame()
    return struct.pack(">i", len(frame)) + frame


async def asked_twice(made: Target, client: RawClient, effect: Effect, **where: Any) -> tuple[bytes, bytes]:
    """Return the answer to a request, and what came of the same answer under a fault, until the end or silence."""
    client.send(MetadataRequest(), 12)
    whole = await answer_frame(client)
    made.script.add_fault(Fault(effect=effect, api="Metadata", **where))
    client.send(MetadataRequest(), 12)
    came = b""
    while len(came) < len(whole) and (part := await client.reader.read(1 << 16)):
        came += part
    correlation_id = struct.unpack_from(">i", whole, 4)[0] + 1
    return whole[:4] + struct.pack(">i", correlation_id) + whole[8:], came


@everywhere
@pytest.mark.parametrize("size", [0, 3, 20])
def test_a_truncated_answer_is_a_prefix_and_the_end(kind: str, size: int) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        whole, came = await asked_twice(made, client, Truncate(size))
        assert came == whole[:size]
        assert await end_of(client) == "closed"

    play(kind, scenario)


@everywhere
@pytest.mark.parametrize("effect", [Rechunk(), Rechunk(7), Drip(20_000.0)], ids=repr)
def test_an_answer_in_pieces_is_the_same_answer(kind: str, effect: Effect) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        started = now()
        whole, came = await asked_twice(made, client, effect, seed=5)
        assert came == whole
        if isinstance(effect, Drip):
            assert now() - started >= len(whole) / effect.bytes_per_s - TICK_S
        await is_served(client)

    play(kind, scenario)


@everywhere
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_corrupted_answer_differs_in_one_byte(kind: str, seed: int) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        whole, came = await asked_twice(made, client, Corrupt(), seed=seed)
        assert came[:4] == whole[:4]
        assert sum(was != now for was, now in zip(whole, came, strict=True)) == 1

    play(kind, scenario)


@pytest.mark.parametrize("effect", [Corrupt(), Rechunk(9)], ids=repr)
def test_what_is_drawn_is_drawn_alike_everywhere(effect: Effect) -> None:
    heard: list[bytes] = []

    async def scenario(made: Target, client: RawClient) -> None:
        made.script.add_fault(Fault(effect=effect, api="Produce", times=None, seed=9))
        for value in (b"a", b"b"):
            client.send_produce({("t", 0): batch(value)})
            heard.append(await client.frame())

    for kind in EVERYWHERE:
        play(kind, scenario)
    assert heard[:2] == heard[2:4] == heard[4:]


@everywhere
def test_an_answer_can_have_another_correlation_id_or_a_length_no_frame_has(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        whole, came = await asked_twice(made, client, WrongCorrelation())
        assert came[4:8] != whole[4:8] and (came[:4], came[8:]) == (whole[:4], whole[8:])
        whole, came = await asked_twice(made, client, HugeLength())
        assert came == struct.pack(">i", 2**31 - 1) + whole[4:]
        whole, came = await asked_twice(made, client, HugeLength(-1))
        assert came == struct.pack(">i", -1) + whole[4:]

    play(kind, scenario)


@everywhere
def test_an_answer_can_come_twice(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.duplicate_next("Produce")
        client.send_produce({("t", 0): batch(b"a")})
        assert await client.frame() == await client.frame()
        await is_served(client)
        assert values(made.cluster) == [b"a"]

    play(kind, scenario)


# ---------------------------------------------------------------------- bytes of requests
@everywhere
@pytest.mark.parametrize("size", [0, 3, 60])
def test_half_a_request_is_none_and_the_end(kind: str, size: int) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.truncate_next("Produce", size, before_serving=True)
        client.send_produce({("t", 0): batch(b"a")})
        assert await end_of(client) == "closed"
        assert values(made.cluster) == []

    play(kind, scenario)


@everywhere
def test_a_request_in_pieces_is_served_when_it_is_whole(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.rechunk_next("Produce", before_serving=True)
        assert (await client.produce("t", batch(b"a"))).base_offset == 0
        made.script.drip_next("Produce", 4_000.0, before_serving=True)
        started = now()
        assert (await client.produce("t", batch(b"b"))).base_offset == 1
        assert now() - started >= 0.02 - TICK_S
        assert values(made.cluster) == [b"a", b"b"]

    play(kind, scenario)


@everywhere
def test_a_request_that_comes_twice_is_carried_out_twice_and_answered_once(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.duplicate_next("Produce", before_serving=True)
        assert (await client.produce("t", batch(b"a"))).base_offset == 0
        assert (await client.produce("t", batch(b"b"))).base_offset == 2
        assert values(made.cluster) == [b"a", b"a", b"b"]
        assert made.cluster.requests_seen("Produce") == 3

    play(kind, scenario)


@everywhere
def test_a_corrupted_record_is_found_by_its_crc(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        rule = made.script.corrupt_next("Produce", offset=-6, mask=0x10, before_serving=True)
        assert (await client.produce("t", batch(b"a value"))).error_code == 2
        assert rule.hits == 1 and values(made.cluster) == []
        assert made.cluster.requests_seen("Produce") == 1
        assert (await client.produce("t", batch(b"a value"))).error_code == 0

    play(kind, scenario)


@everywhere
def test_a_request_with_another_correlation_id_is_answered_with_it(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.wrong_correlation_next("Produce", before_serving=True)
        sent = client.send_produce({("t", 0): batch(b"a")})
        (got,) = struct.unpack_from(">i", await client.frame())
        assert got == sent ^ 0x5A5A
        await is_served(client)
        assert values(made.cluster) == [b"a"]

    play(kind, scenario)


@everywhere
@pytest.mark.parametrize("length", [2**31 - 1, -1, 2])
def test_a_request_with_an_impossible_length_ends_the_connection(kind: str, length: int) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.huge_length_next("Produce", length=length, before_serving=True)
        client.send_produce({("t", 0): batch(b"a")})
        assert await end_of(client) in ("closed", "reset")
        assert values(made.cluster) == []

    play(kind, scenario)


# ---------------------------------------------------------------------- connections and brokers
async def dialled(made: Target, node: int = 1) -> str:
    """Return the end of a new connection: "served", "reset", "refused" or "silent"."""
    try:
        async with made.client(node) as client, asyncio.timeout(1.0):
            await is_served(client)
    except ConnectionRefusedError:
        return "refused"
    except (ConnectionResetError, asyncio.IncompleteReadError):
        return "reset"
    except TimeoutError:
        return "silent"
    return "served"


@everywhere
def test_new_connections_are_reset_or_refused_and_open_ones_go_on(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        rule = made.script.refuse_next(1, times=2)
        assert [await dialled(made, node) for node in (2, 1, 1, 1)] == ["served", "reset", "reset", "served"]
        assert rule.is_spent
        for _ in range(2):
            made.script.refuse_connections(1)
            assert [await dialled(made, 1), await dialled(made, 2)] == ["refused", "served"]
            await is_served(client)
            made.script.allow_connections(1)
            assert await dialled(made) == "served"

    play(kind, scenario, brokers=2)


@everywhere
@pytest.mark.parametrize("abort", [False, True])
def test_open_connections_end_and_new_ones_are_taken(kind: str, abort: bool) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        async with made.client(2) as other:
            await is_served(other)
            assert made.script.close_connections(1, abort=abort) == 1
            assert await end_of(client) == ("reset" if abort else "closed")
            await is_served(other)
            assert await dialled(made) == "served"
            assert made.script.close_connections() >= 1
            assert await end_of(other) == "closed"

    play(kind, scenario, brokers=2)


@everywhere
def test_a_frozen_broker_is_silent_and_then_goes_on_where_it_stopped(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.script.freeze_broker(1)
        client.send_produce({("t", 0): batch(b"a")})
        client.send_produce({("t", 0): batch(b"b")})
        assert await client.is_silent()
        assert [await dialled(made, 1), await dialled(made, 2)] == ["silent", "served"]
        assert values(made.cluster) == []
        made.script.thaw_broker(1)
        assert [(await client.produced())["t", 0].base_offset for _ in range(2)] == [0, 1]
        assert await dialled(made) == "served"

    play(kind, scenario, brokers=2)


@everywhere
def test_a_broker_frozen_while_it_owes_an_answer_owes_it_until_it_is_thawed(kind: str) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        made.cluster.freeze_replicas("t", 0)
        client.send_produce({("t", 0): batch(b"a")})
        await made.cluster.until_seen("Produce")
        made.script.freeze_broker(1)
        made.cluster.thaw_replicas("t", 0)
        assert await client.is_silent()
        made.script.thaw_broker(1)
        assert (await client.produced())["t", 0].base_offset == 0

    play(kind, scenario, brokers=2)


# ---------------------------------------------------------------------- without acks
@everywhere
@pytest.mark.parametrize(
    ("fault", "ends"),
    [
        (lambda made: made.script.drop_answer("Produce"), True),
        (lambda made: made.script.close_after("Produce"), True),
        (lambda made: made.script.swallow_next("Produce"), False),
        (lambda made: made.script.delay_next("Produce", 0.02), False),
        (lambda made: made.script.truncate_next("Produce", 3), False),
    ],
    ids=["drop", "close", "swallow", "delay", "truncate"],
)
def test_a_fault_of_the_answer_of_a_request_that_has_none(
    kind: str, fault: Callable[[Target], object], ends: bool
) -> None:
    async def scenario(made: Target, client: RawClient) -> None:
        fault(made)
        client.send_produce({("t", 0): batch(b"a")}, acks=0)
        if ends:
            assert await end_of(client) == "closed"
        else:
            await is_served(client)
        await eventually(lambda: values(made.cluster) == [b"a"])

    play(kind, scenario)
