"""`Entry` and `Entries` beside a plain list: what leaves, in any order, and what stays."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from ledger_desk import DELIVERY_TIMEOUT_S, NOW_MS, Desk

from aiokprod.pipeline.partition.batch import BatchOwner, ProducerBatch
from aiokprod.pipeline.partition.ledger import Entry
from aiokprod.pipeline.partition.ledger_entry import Entries


def sealed(count: int) -> Entry:
    """Return an entry whose records were sent 20 ms apart."""
    batch = ProducerBatch(BatchOwner(), 0.0, DELIVERY_TIMEOUT_S, 0, 0, NOW_MS)
    for number in range(count):
        batch.append(b"v", None, None, NOW_MS, 10, number * 0.02)
    entry = Entry(1, batch)
    entry.seal()
    return entry


def indices(ranges: list[tuple[int, int]]) -> list[int]:
    assert all(first < last for first, last in ranges)
    assert all(before[1] < after[0] for before, after in pairwise(ranges)), "not joined"
    return [index for first, last in ranges for index in range(first, last)]


@pytest.mark.parametrize("seed", range(30))
def test_an_entry_has_the_records_that_did_not_leave_whenever_it_is_asked(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.randrange(1, 60)
    entry, there = sealed(size), list(range(size))
    while there:
        match draw.randrange(5):
            case 0:
                gone = draw.sample(there, draw.randrange(1, min(4, len(there)) + 1))
                entry.without(gone)
                there = [index for index in there if index not in gone]
            case 1:
                gone = [draw.choice(there)]
                entry.without((gone[0],))
                there.remove(gone[0])
            case 2:
                end = draw.randrange(size + 1) if draw.random() < 0.3 else there[0] + 1
                assert indices(entry.without_first(end)) == [index for index in there if index < end]
                there = [index for index in there if index >= end]
            case 3:
                assert indices(entry.ranges) == there
            case _:
                assert entry.deadline() == entry.batch.deadline_of(there[0])
        assert entry.count == len(there)
        assert [index for index in range(-1, size + 1) if entry.has(index)] == there
    assert entry.ranges == []


def test_an_encoded_section_is_void_once_a_record_leaves() -> None:
    entry = sealed(3)
    entry.encoded = b"section"
    entry.without((1,))
    assert entry.encoded is None
    assert entry.positions((1,)) == [(1, 2)]


@pytest.mark.parametrize("seed", range(20))
def test_the_parts_of_an_entry_have_its_records_and_its_stamp(seed: int) -> None:
    draw = random.Random(seed)
    size = draw.randint(2, 12)
    entry = sealed(size)
    entry.without(draw.sample(range(size), draw.randint(0, size - 2)))
    there, whole_bytes = indices(entry.ranges), entry.size_bytes()
    entry.producer_id, entry.producer_epoch, entry.attempt = 7, 3, 2
    count = draw.randint(1, entry.count - 1)
    first, rest = entry.cut(count)
    assert (first.count, rest.count) == (count, entry.count - count)
    assert (indices(first.ranges), indices(rest.ranges)) == (there[:count], there[count:])
    assert first.size_bytes() + rest.size_bytes() == whole_bytes
    for part in (first, rest):
        assert part.size_bytes() == entry.batch.bytes_of(part.ranges)
        assert (part.identity, part.attempt, part.state) == ((7, 3), 2, entry.state)
        assert part.batch is entry.batch


@pytest.mark.parametrize(
    ("limit_bytes", "count"), [(0, 1), (9, 1), (10, 1), (19, 1), (20, 2), (39, 3), (40, 3), (99, 3)]
)
def test_as_many_records_as_fit_but_one_and_not_all(limit_bytes: int, count: int) -> None:
    entry = sealed(6)
    entry.without((0, 3))
    assert entry.size_bytes() == 40
    assert entry.fitting(limit_bytes) == count


@pytest.mark.parametrize("seed", range(30))
def test_the_line_of_entries_is_a_list_from_which_any_may_leave(seed: int) -> None:
    draw = random.Random(seed)
    line, there = Entries(), list[Entry]()
    made: list[Entry] = []

    def new() -> Entry:
        made.append(Entry(len(made), sealed(1).batch))
        return made[-1]

    for _ in range(100):
        match draw.randrange(8):
            case 0 | 1 | 2:
                line.append(new())
                there.append(made[-1])
            case 3 if there:
                line.remove(there.pop(draw.randrange(len(there))))
            case 4 if there:
                assert line.popleft() is there.pop(0)
            case 5 if there:
                at = draw.randrange(len(there))
                assert line.index(there[at]) == at
                line.insert(at, new())
                there.insert(at, made[-1])
            case 6 if draw.random() < 0.2:
                line.insert(len(there), new())
                there.append(made[-1])
            case 7 if draw.random() < 0.05:
                there = []
                line.clear()
            case _:
                for entry in line:  # the one that is looked at may leave
                    if draw.random() < 0.1:
                        line.remove(entry)
                        there.remove(entry)
        assert list(line) == there
        assert (len(line), bool(line)) == (len(there), bool(there))
        assert [entry for entry in made if entry in line] == sorted(there, key=made.index)
        if there:
            assert line[0] is there[0] and line[-1] is there[-1]
    for entry in made:
        if entry not in there:
            assert entry.line is None and entry.before is None and entry.behind is None
            with pytest.raises(ValueError, match="not in this line"):
                line.remove(entry)
            with pytest.raises(ValueError, match="not in this line"):
                line.index(entry)


def test_an_empty_line_has_no_first_entry() -> None:
    line = Entries()
    for position in (0, -1):
        with pytest.raises(IndexError):
            line[position]
    with pytest.raises(IndexError):
        line.popleft()


def test_a_record_is_recalled_once_and_only_before_it_was_sent() -> None:
    desk = Desk()
    first, second = desk.send(3), desk.send(3)
    assert desk.ledger.recall(second, 1)
    assert not desk.ledger.recall(second, 1)
    assert desk.fly() == [first]
    assert not desk.ledger.recall(first, 0)
    assert desk.ledger.recall(second, 0)
    assert desk.ledger.recall(second, 2)
    assert list(desk.ledger.entries) == [first]
    assert not desk.ledger.recall(second, 2), "its entry has left"
