"""The committed offsets of a group, stable ones, on the mock."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from txn_rig import CLUSTERS, run

from aiokprod import Producer
from aiokprod.errors import BrokerAnswerError, ProtocolError, UnsupportedVersionError
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import run_virtual
from aiokprod.transactions.coordinator import NoAnswer
from aiokprod.transactions.group_offsets import stable_offsets
from aiokprod.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
)

WHERE = [("t", 0), ("t", 1)]


async def offsets(producer: Producer, reasons: list[str] | None = None) -> dict[tuple[str, int], int]:
    told = [] if reasons is None else reasons
    return await producer._transactor().committed_offsets("g", WHERE, told.append)


def test_offsets_are_those_that_were_committed() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        assert await offsets(producer) == {}
        async with producer.transaction() as transaction:
            await transaction.send_offsets({("t", 1): 10}, "g")
        assert await offsets(producer) == {("t", 1): 10}
        assert {seen.version for seen in cluster.requests("OffsetFetch")} == {7}
        assert await producer._transactor().committed_offsets("g", [], print) == {}

    run(scenario)


def test_a_commit_that_is_not_finished_is_waited_for() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        producer.begin_transaction()
        await producer.send_offsets_to_transaction({("t", 0): 5}, "g")
        reasons: list[str] = []
        waiting = asyncio.create_task(offsets(producer, reasons))
        await asyncio.sleep(10)
        assert not waiting.done()
        await producer.commit_transaction()
        assert await waiting == {("t", 0): 5}
        assert set(reasons) == {"UNSTABLE_OFFSET_COMMIT"}

    run(scenario, CLUSTERS["TV2"] | {"transaction_completion_ms": 3000})


@pytest.mark.parametrize("code", [14, 15, 16, 7, -1, 88])
def test_codes_that_pass_are_asked_again(code: int) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.fail_next("OffsetFetch", code, times=3)
        reasons: list[str] = []
        assert await offsets(producer, reasons) == {}
        assert len(reasons) == 3

    run(scenario)


def test_lost_answers_and_a_dead_coordinator_are_asked_again() -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        async with producer.transaction() as transaction:
            await transaction.send_offsets({("t", 0): 5}, "g")
        cluster.drop_answer("OffsetFetch", times=2)
        assert await offsets(producer) == {("t", 0): 5}
        cluster.kill_broker(cluster.group_coordinator("g"))
        assert await offsets(producer) == {("t", 0): 5}

    run(scenario)


@pytest.mark.parametrize("code", [30, 24])
def test_a_refusal_is_told(code: int) -> None:
    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        cluster.fail_next("OffsetFetch", code)
        with pytest.raises(BrokerAnswerError, match="the group 'g'") as caught:
            await offsets(producer)
        assert caught.value.code == code
        cluster.fail_next("FindCoordinator", 30)
        producer._transactor()._coordinators._nodes.clear()
        with pytest.raises(BrokerAnswerError):
            await offsets(producer)

    run(scenario)


class Answers:
    """Coordinators that give these answers."""

    def __init__(self, *answers: Any) -> None:
        self.left = list(answers)

    async def ask(self, *_: object) -> Any:
        return self.left.pop(0)


def asked(answer: Any) -> dict[tuple[str, int], int]:
    async def scenario(*_: object) -> dict[tuple[str, int], int]:
        return await stable_offsets(Answers(answer), None, "g", WHERE, print)  # type: ignore[arg-type]

    return run_virtual(scenario, seed=1)


@pytest.mark.parametrize(
    ("partitions", "expected"),
    [
        ([(0, 3, 0), (1, -1, 0)], {("t", 0): 3}),
        ([(0, 3, 0), (1, -1, 3)], {("t", 0): 3}),
        ([(0, 3, 0), (1, 4, 0), (2, 9, 0)], {("t", 0): 3, ("t", 1): 4}),
        ([(0, 3, 0)], ProtocolError),
        ([(0, 3, 0), (1, -2, 0)], ProtocolError),
        ([], ProtocolError),
    ],
    ids=["one", "no topic", "more than asked", "lacks one", "below -1", "none"],
)
def test_what_an_answer_may_be(partitions: list[tuple[int, int, int]], expected: Any) -> None:
    answer = OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                "t", [OffsetFetchResponsePartition(at, offset, error_code=code) for at, offset, code in partitions]
            )
        ]
    )
    if isinstance(expected, dict):
        assert asked(answer) == expected
    else:
        with pytest.raises(expected, match="OffsetFetch"):
            asked(answer)


def test_a_broker_that_is_too_old_is_named() -> None:
    none = NoAnswer(UnsupportedVersionError("no version"), is_written=False, code=35)
    with pytest.raises(UnsupportedVersionError, match=r"2\.5"):
        asked(none)
