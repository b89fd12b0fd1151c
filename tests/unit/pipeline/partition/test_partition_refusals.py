"""The broker's texts about a batch and its records (KIP-467), of any form: each record has its own words."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from virtual_rig import log, outcomes, run, started

from aiokprod import RecordMetadata
from aiokprod.errors import BrokerRejectedError, InvalidRecordError
from aiokprod.pipeline.partition.verdicts import Refusal
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork
from aiokprod.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

COUNT = 6  # records of a batch

TEXTS = st.one_of(st.none(), st.sampled_from(["", "no key", "too old", "\x1b[31mred\n"]))
RECORD_ERRORS = st.lists(
    st.tuples(st.one_of(st.integers(-2, COUNT + 2), st.sampled_from([-(2**31), 2**31 - 1])), TEXTS), max_size=10
)


def own_text(record_errors: Sequence[tuple[int, str | None]], position: int, message: str | None) -> str:
    """Return the text for a named record: its first text, else the batch's."""
    own = [text for at, text in record_errors if at == position and text]
    words = own[0] if own else message or ""
    return "INVALID_RECORD" + (f": {words}" if words else "").replace("\x1b", "\\x1b").replace("\n", "\\n")


@given(RECORD_ERRORS, TEXTS)
def test_a_refusal_names_records_of_the_batch_and_gives_each_its_first_text(
    record_errors: list[tuple[int, str | None]], message: str | None
) -> None:
    refusal = Refusal(87, message, record_errors, COUNT)
    assert refusal.named == tuple(sorted({at for at, _ in record_errors if 0 <= at < COUNT}))
    for position in refusal.named:
        assert refusal.text_of(position) == own_text(record_errors, position, message)


def refusing(cluster: MockCluster, record_errors: Sequence[tuple[int, str | None]], message: str | None) -> Any:
    def answer(request: object, version: int) -> ProduceResponse:
        refused = PartitionProduceResponse(
            error_code=87,
            base_offset=-1,
            record_errors=[BatchIndexAndErrorMessage(*each) for each in record_errors],
            error_message=message,
        )
        topic = TopicProduceResponse(name="t", topic_id=cluster.topic_id("t"), partition_responses=[refused])
        return ProduceResponse(responses=[topic])

    return answer


@settings(deadline=None, max_examples=60)
@given(RECORD_ERRORS, TEXTS)
@example([(4, "second"), (1, "first")], "the batch")
@example([], "refused")
@example([(at, f"number {at}") for at in range(COUNT)], None)
def test_whatever_a_broker_names_each_record_has_its_own_text_and_the_others_arrive(
    record_errors: list[tuple[int, str | None]], message: str | None
) -> None:
    """faults: P24, H13"""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=1_000) as (cluster, producer):
            cluster.answer_with("Produce", refusing(cluster, record_errors, message))
            deliveries = [producer.send("t", b"%d" % number) for number in range(COUNT)]
            await producer.flush()
            results = await outcomes(deliveries)
            named = {at for at, _ in record_errors if 0 <= at < COUNT}
            if not named:
                for result in results:
                    assert type(result) is BrokerRejectedError
                    assert "the broker refused the batch" in result.message
                assert log(cluster) == []
                return
            for number, result in enumerate(results):
                if number in named:
                    assert type(result) is InvalidRecordError
                    assert result.message == own_text(record_errors, number, message)
                else:
                    assert isinstance(result, RecordMetadata)
            assert log(cluster) == [b"%d" % number for number in range(COUNT) if number not in named]

    run(scenario)


@settings(deadline=None, max_examples=30)
@given(RECORD_ERRORS, TEXTS, st.sets(st.integers(0, COUNT - 1)))
@example([(at, f"number {at}") for at in range(COUNT)], None, set())
def test_failures_that_nothing_waits_for_are_told_each_with_its_own_text(
    record_errors: list[tuple[int, str | None]], message: str | None, awaited: set[int]
) -> None:
    """faults: P24"""
    named = {at for at, _ in record_errors if 0 <= at < COUNT}

    async def scenario(network: VirtualNetwork) -> None:
        told: list[str] = []
        async with started(network, linger_ms=1_000, on_delivery_error=lambda error: told.append(error.message)) as (
            cluster,
            producer,
        ):
            cluster.answer_with("Produce", refusing(cluster, record_errors, message))
            deliveries = [producer.send("t", b"%d" % number) for number in range(COUNT)]
            waiting = asyncio.gather(*(deliveries[number] for number in awaited), return_exceptions=True)
            await producer.flush()
            await waiting
        if named:
            assert told == [own_text(record_errors, at, message) for at in sorted(named - awaited)]
        else:
            assert len(told) == COUNT - len(awaited)

    run(scenario)
