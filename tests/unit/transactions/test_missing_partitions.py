"""Offsets whose partition the coordinator of the group does not know: too new, or not there at all."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from aiokprod.errors import AiokprodError, RequestTimeoutError
from aiokprod.transactions.errors_of_causes import missing_partitions
from aiokprod.transactions.machine_actions import NO_ANSWER, NO_SUCH_PARTITION, Partition
from aiokprod.transactions.missing_partitions import PATIENCE_S, MissingPartitions
from aiokprod.wire.messages.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic

A, B, ELSEWHERE = ("a", 0), ("a", 1), ("b", 0)
PART = MetadataResponsePartition(partition_index=0)


class Cluster:
    """Coordinators whose brokers have these topics, with their codes and partitions; an error is no answer."""

    def __init__(self, *topics: MetadataResponseTopic) -> None:
        self.answer: MetadataResponse | AiokprodError = MetadataResponse(topics=list(topics))
        self.asked: list[list[str]] = []
        self.now = 100.0
        self.missing = MissingPartitions(self, lambda: self.now)  # type: ignore[arg-type]

    async def topics(self, group: str, names: Iterable[str], timeout_s: float) -> MetadataResponse:
        assert group == "g" and timeout_s < PATIENCE_S
        self.asked.append(list(names))
        if isinstance(self.answer, AiokprodError):
            raise self.answer
        return self.answer

    def judged(self, codes: dict[Partition, int], *, after: float = 0.0, call: int = 1) -> dict[Partition, int]:
        self.now += after
        return asyncio.run(self.missing.judged(call, "g", codes))


def topic(name: str, code: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(code, name, partitions=[] if code else [PART])


def test_a_new_partition_has_time() -> None:
    cluster = Cluster(topic("a", 3))
    for _ in range(3):
        assert cluster.judged({A: 3, ELSEWHERE: 0}, after=PATIENCE_S / 3) == {A: 3, ELSEWHERE: 0}
    assert cluster.asked == []
    assert cluster.judged({A: 3, ELSEWHERE: 0}, after=1) == {A: NO_SUCH_PARTITION, ELSEWHERE: 0}
    assert cluster.asked == [["a"]]


def test_each_call_has_its_own_time() -> None:
    cluster = Cluster(topic("a", 3))
    cluster.judged({A: 3})
    assert cluster.judged({A: 3}, after=PATIENCE_S, call=2) == {A: 3}
    assert cluster.judged({A: 3}, after=PATIENCE_S, call=2) == {A: NO_SUCH_PARTITION}


@pytest.mark.parametrize(
    ("known", "missing"),
    [
        (topic("a"), [B]),  # has partition 0 alone
        (topic("a", 3), [A, B]),
        (topic("a", 17), [A, B]),
        (topic("a", 29), []),  # not told to this principal
        (topic("a", 5), []),
        (topic("other", 3), []),
    ],
)
def test_what_another_broker_says_decides(known: MetadataResponseTopic, missing: list[Partition]) -> None:
    cluster = Cluster(known)
    cluster.judged({A: 3, B: 3})
    told = cluster.judged({A: 3, B: 3}, after=PATIENCE_S)
    assert told == {where: NO_SUCH_PARTITION if where in missing else 3 for where in (A, B)}


def test_a_partition_that_another_broker_has_is_not_asked_for_each_time() -> None:
    cluster = Cluster(topic("a"))
    for _ in range(9):
        assert cluster.judged({A: 3}, after=PATIENCE_S / 4) == {A: 3}
    assert cluster.asked == [["a"]] * 2


def test_without_an_answer_the_next_attempt_asks_again() -> None:
    cluster = Cluster(topic("a", 3))
    answer, cluster.answer = cluster.answer, RequestTimeoutError("no answer")
    cluster.judged({A: 3})
    assert cluster.judged({A: 3}, after=PATIENCE_S) == {A: 3}
    cluster.answer = answer
    assert cluster.judged({A: 3}, after=0.1) == {A: NO_SUCH_PARTITION}


@pytest.mark.parametrize("beside", [14, 16, 22, 29, 47])
def test_other_codes_come_first(beside: int) -> None:
    cluster = Cluster(topic("a", 3))
    for _ in range(2):
        assert cluster.judged({A: 3, ELSEWHERE: beside}, after=PATIENCE_S) == {A: 3, ELSEWHERE: beside}
    assert cluster.asked == []
    assert cluster.judged({A: NO_ANSWER}) == {A: NO_ANSWER}


@pytest.mark.parametrize(
    ("partitions", "told"),
    [
        ([A], "the cluster has no partition 0 of topic 'a'"),
        ([A, B], "the cluster has no partition 0 of topic 'a' and partition 1 of topic 'a'"),
        ([A, B, ELSEWHERE, ("c", 1), ("c", 2)], "partition 1 of topic 'a', partition 0 of topic 'b' and 2 more"),
        ([], "the cluster has no partition that was named"),
    ],
)
def test_the_error_names_partitions(partitions: list[Partition], told: str) -> None:
    error = missing_partitions("g", partitions)
    assert error.message.endswith(told) and error.message.startswith("the offsets of group 'g' were not taken")
    assert (error.topic, error.partition) == (partitions[0] if partitions else (None, None))
    assert error.code == 3 and error.__notes__ == [error.advice]
