"""Drawn scripts: whatever faults are in force together, a client hears the same from each target."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mock_batches import batch
from mock_client import RawClient
from mock_requests import values
from targets import EVERYWHERE, Target, play

from aiokprod.errors import ProtocolError
from aiokprod.testing.faults import (
    Close,
    Delay,
    Drop,
    Duplicate,
    Fail,
    Fault,
    HugeLength,
    Omit,
    Rechunk,
    Throttle,
    Truncate,
    WrongCorrelation,
)
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.messages.produce import ProduceResponse

ROUNDS = 6

errors = st.builds(Fail, st.sampled_from([7, 19, 20]), after_append=st.booleans(), with_hint=st.booleans())
answers_only = errors | st.builds(Omit, st.booleans()) | st.builds(Throttle, st.just(1)) | st.just(Close())
either_way = st.one_of(
    st.builds(Drop, st.booleans()),
    st.builds(Truncate, st.integers(0, 120)),
    st.builds(Rechunk, st.integers(20, 60)),
    st.sampled_from([Delay(0.0), HugeLength(), WrongCorrelation()]),
)
where: dict[str, Any] = {
    "api": st.sampled_from([None, "Produce", "Metadata"]),
    "topic": st.sampled_from([None, None, "t", "u"]),
    "partition": st.sampled_from([None, None, 0, 1]),
    "nth": st.integers(1, 4),
    "times": st.sampled_from([1, 1, 2, None]),
    "chance": st.sampled_from([1.0, 1.0, 0.5]),
    "seed": st.integers(0, 100),
}
one_answer_each = st.one_of(
    st.builds(Fault, effect=answers_only, **where),
    st.builds(Fault, effect=either_way, before_serving=st.booleans(), **where),
)
# A doubled request is served twice, and this client waits for the first answer only: a proxy may count the second one
# after the next request, a broker counts it before. So all rules beside it are about Produce, and no connection ends early.
# (Of a doubled answer this client would read the second half as another one; that is in test_loss.)
of_produce = where | {"api": st.just("Produce")}
answered_twice = st.one_of(
    st.builds(Fault, effect=st.just(Duplicate()), before_serving=st.just(True), **of_produce),
    st.builds(Fault, effect=errors | st.builds(Omit, st.booleans()) | st.builds(Throttle, st.just(1)), **of_produce),
    st.builds(Fault, effect=st.builds(Rechunk, st.integers(20, 60)), before_serving=st.booleans(), **of_produce),
)


def scripts(most: int) -> st.SearchStrategy[list[Fault]]:
    return st.lists(one_answer_each, min_size=1, max_size=most) | st.lists(answered_twice, min_size=1, max_size=most)


async def hear(client: RawClient, response: type, version: int) -> object:
    """Return what comes in answer: a message, or how the connection ended, or bytes that are no answer."""
    came = b""
    try:
        came = await client.reader.readexactly(4)
        (length,) = struct.unpack(">i", came)
        if not 4 <= length <= 10_000:
            return "no length"
        came = await client.reader.readexactly(length)
    except asyncio.IncompleteReadError as cut:
        return f"closed after {len(cut.partial)}"
    except ConnectionResetError:
        return "reset"
    (correlation_id,) = struct.unpack_from(">i", came)
    try:
        answer = response.decode(came[5:], version)  # type: ignore[attr-defined]
    except ProtocolError:
        return "another answer"
    if isinstance(answer, ProduceResponse):
        told = {
            (topic.name, p.index): (p.error_code, p.base_offset, p.current_leader.leader_id)
            for topic in answer.responses
            for p in topic.partition_responses
        }
        return correlation_id, answer.throttle_time_ms, told, len(answer.node_endpoints)
    topics = {t.name: (t.error_code, [(p.partition_index, p.error_code) for p in t.partitions]) for t in answer.topics}
    return correlation_id, answer.throttle_time_ms, topics


def heard(kind: str, script: list[Fault]) -> object:
    """Return all that a client hears in some rounds of requests, the log after them, and how often each rule acted."""
    story: list[object] = []

    async def scenario(made: Target, client: RawClient) -> None:
        rules = [made.script.add_fault(fault) for fault in script]
        for number in range(ROUNDS):
            async with made.client() as one:
                one.send_produce({("t", partition): batch(b"%d" % number) for partition in (0, 1)})
                told = await hear(one, ProduceResponse, 12)
                story.append(told)
                if isinstance(told, tuple):
                    one.send(MetadataRequest(topics=None), 12)
                    story.append(await hear(one, MetadataResponse, 12))
        made.script.clear_faults()
        story.append([values(made.cluster, partition=partition) for partition in (0, 1)])
        story.append([rule.hits for rule in rules])

    play(kind, scenario, brokers=2)
    return story


def is_heard_alike(script: list[Fault]) -> None:
    mock, proxy, virtual = (heard(kind, script) for kind in EVERYWHERE)
    assert mock == proxy
    assert mock == virtual


@example(
    script=[
        Fault(effect=Fail(7), nth=4),
        Fault(effect=Rechunk(20), before_serving=True, times=None, chance=0.5),  # draws sizes at a proxy only
    ]
)
@settings(max_examples=20, deadline=None, derandomize=True, database=None)
@given(script=scripts(4))
def test_any_script_is_heard_alike_everywhere(script: list[Fault]) -> None:
    is_heard_alike(script)


@pytest.mark.slow
@settings(max_examples=500, deadline=None, derandomize=True, database=None)
@given(script=scripts(6))
def test_many_more_scripts_are_heard_alike_everywhere(script: list[Fault]) -> None:
    is_heard_alike(script)
