"""The outcomes of a batch beside a plain set: pieces of any size in any order, awaited and claimed in any way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Generator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from stage_rig import ManualLoop

from aiokprod import RecordMetadata
from aiokprod.errors import AiokprodError
from aiokprod.pipeline.delivery.delivery import Delivery
from aiokprod.pipeline.partition.batch import BatchOwner, ProducerBatch, Segment
from aiokprod.pipeline.partition.outcomes import Claim
from aiokprod.pipeline.partition.parked_record import ParkedRecord

pytestmark = pytest.mark.pure("its owner of batches subclasses BatchOwner")


class Owner(BatchOwner):
    """A partition queue with nothing to do."""

    def __init__(self) -> None:
        self.topic = "t"
        self.partition = 0
        self.loop = ManualLoop()

    def urge(self, batch: ProducerBatch) -> None:
        """Ignore the request: the batch goes in its own time."""


def cut(draw: random.Random, size: int) -> list[tuple[int, int]]:
    """Split the batch, mostly into pieces of one record, in the order of the records, in reverse, or at random."""
    pieces = []
    at = 0
    while at < size:
        last = min(size, at + draw.choice([1, 1, 1, 2, 5, size]))
        pieces.append((at, last))
        at = last
    order = draw.randrange(3)
    if order == 1:
        pieces.reverse()
    elif order == 2:
        draw.shuffle(pieces)
    return pieces


@pytest.mark.parametrize("seed", range(60))
def test_whatever_settles_first_each_record_has_its_own_outcome_and_each_handle_is_woken_once(seed: int) -> None:
    draw = random.Random(seed)
    owner = Owner()
    size = draw.randrange(1, 60)
    batch = ProducerBatch(owner, 0.0, 10.0, 0, 7, 0)
    for _ in range(size):
        batch.append(b"v", None, None, 0, 10, 0.0)
    called: list[int] = []
    awaited: list[int] = []
    claimed: set[int] = set()

    def note(done: Delivery) -> None:
        called.append(done._index)

    def forget(done: Delivery) -> None:
        raise AssertionError("it was removed")

    def claim_some(at: int) -> None:
        while at < size:
            claim: Claim = batch.claim(at)
            claim.last = min(size, at + draw.randrange(1, 4))
            claimed.update(range(claim.first, claim.last))
            at = claim.last + draw.randrange(20)

    def await_some() -> None:
        for index in draw.choices(live, k=draw.randrange(1 + len(live))) if live else ():
            handle = Delivery(batch, index)
            if draw.random() < 0.2:
                handle.add_done_callback(forget)
                handle.remove_done_callback(forget)
            else:
                handle.add_done_callback(note)
                awaited.append(index)

    live = list(range(size))
    if draw.random() < 0.5:
        claim_some(draw.randrange(size))
    charged = batch.charged_bytes
    for first, last in cut(draw, size):
        if draw.random() < 0.5:
            await_some()
        piece = Segment(first, last, -1, -1, AiokprodError(f"{first}"), 1, 0.0)
        waited = claimed.union(awaited)
        assert batch.unwatched(piece) == [index for index in range(first, last) if index not in waited]
        charged -= batch.settle(piece)
        owner.loop.run()
        assert sorted(called) == sorted(index for index in awaited if first <= index < last)
        called.clear()
        live = [index for index in live if not first <= index < last]
        for index in range(size):
            found = batch.segment_of(index)
            assert (found is None) == (index in live)
            if first <= index < last:
                assert found is piece
        end = draw.randrange(size + 1)
        assert [i for a, b in batch.live_ranges(end) for i in range(a, b)] == [index for index in live if index < end]
        ranges = batch.live_ranges()
        assert [i for a, b in ranges for i in range(a, b)] == live
        assert all(before[1] < after[0] for before, after in pairwise(ranges))
        assert batch.first_unsettled() == (live[0] if live else size)
        assert batch.unsettled_count == len(live)
    assert batch.is_finished and charged == 0
    assert not batch.watched and not batch._watched_at


@pytest.mark.parametrize("seed", range(60))
def test_a_handle_is_registered_once_however_often_it_is_polled_and_is_always_woken(seed: int) -> None:
    """Waits that begin and end, before and after a batch takes the parked record."""
    draw = random.Random(seed)
    owner = Owner()
    record = ParkedRecord(owner.loop, "t", 0.0, 0.0, 0, lambda record: None)
    handle = record.delivery
    assert handle is not None
    batch = ProducerBatch(owner, 0.0, 10.0, 0, 7, 0)
    batch.append(b"v", None, None, 0, 10, 0.0)
    is_in_batch = False
    woken: list[str] = []
    waiting: dict[str, Generator[Any, None, RecordMetadata]] = {}
    called: list[Callable[[Delivery], None]] = []

    def call(done: Delivery) -> None:
        woken.append("callback")

    for step in range(draw.randrange(30)):
        match draw.randrange(6):
            case 0:
                waiting[f"task {step}"] = awaiting = handle.__await__()
                next(awaiting).add_done_callback(partial(lambda name, _: woken.append(name), f"task {step}"))
            case 1 if waiting:
                cancelled = waiting.pop(draw.choice(list(waiting)))
                with pytest.raises(asyncio.CancelledError):
                    cancelled.throw(asyncio.CancelledError())
            case 2:
                handle.add_done_callback(call)
                called.append(call)
            case 3:
                assert handle.remove_done_callback(call) == len(called)
                called.clear()
            case 4 if not is_in_batch:
                is_in_batch = True
                handle._move_to(batch, 0)
            case _:
                assert handle._is_watched == bool(waiting or called)
        assert len(batch.watched) <= 1
    if not is_in_batch:
        handle._move_to(batch, 0)
    settled = Segment(0, 1, 7, -1, None, 1, 0.0)
    assert batch.unwatched(settled) == ([] if waiting or called else [0])
    batch.settle(settled)
    owner.loop.run()
    assert woken == [*waiting, *("callback" for _ in called)]
    for awaiting in waiting.values():
        with pytest.raises(StopIteration) as ended:
            next(awaiting)
        assert ended.value.value.offset == 7
