"""Which of the transactions that are open in logs hang there, by what coordinators say."""

from __future__ import annotations

import pytest

from aiokprod.transactions.hanging import HangingTransaction, OpenTransaction, TransactionDescription, hanging_of


def open_in(topic: str = "t", partition: int = 0, producer_id: int = 7, start: int = 5) -> OpenTransaction:
    return OpenTransaction(topic, partition, producer_id, 1, -1, start, 1000)


def described(producer_id: int = 7, *partitions: tuple[str, int]) -> TransactionDescription:
    return TransactionDescription("i", "Ongoing", producer_id, 1, 60_000, 1, partitions)


HERE = open_in()


@pytest.mark.parametrize(
    ("ids", "known", "hangs"),
    [
        ({}, {}, True),
        ({7: "i"}, {}, True),
        ({7: "i"}, {"i": described(7, ("t", 0))}, False),
        ({7: "i"}, {"i": described(7, ("t", 1))}, True),
        ({7: "i"}, {"i": described(7)}, True),
        ({7: "i"}, {"i": described(8, ("t", 0))}, True),
    ],
    ids=["no id", "id is gone", "known", "other partition", "nothing open", "other producer id"],
)
def test_what_no_coordinator_names_hangs(
    ids: dict[int, str], known: dict[str, TransactionDescription], hangs: bool
) -> None:
    found = hanging_of([HERE], ids, known, [HERE])
    assert found == ([HangingTransaction(HERE, ids.get(7))] if hangs else [])


@pytest.mark.parametrize(
    "later", [[], [open_in(start=9)], [open_in(producer_id=8)], [open_in(partition=1)]],
    ids=["ended", "a later one", "another producer's", "elsewhere"],
)  # fmt: skip
def test_what_was_ended_meanwhile_does_not_hang(later: list[OpenTransaction]) -> None:
    assert hanging_of([HERE], {}, {}, later) == []


def test_a_hanging_one_tells_its_place() -> None:
    assert str(HangingTransaction(HERE, None)) == "t-0 from offset 5 (producer id 7)"
