"""A record that is sent while a commit or an abort is under way, at any line of it, shares the end of that transaction.

What sends there is a finalizer that the garbage collector runs, or a handler of a log line. The record is refused, or it is
taken: then it is seen by readers of committed records if, and only if, that transaction is committed.
"""

from __future__ import annotations

import sys
from types import CodeType, FrameType

import pytest
import source_points
from source_points import MOST_POINTS, Point
from txn_rig import CLUSTERS, committed, run

from aiokprod import Delivery, Producer
from aiokprod.errors import AiokprodError
from aiokprod.testing import MockCluster

pytestmark = pytest.mark.pure("points are lines of the sources")
BEFORE = {"nothing": 0, "records that are queued": 2, "records that are written": 3}
ENDS = {"abort": False, "commit": True}


@pytest.mark.slow_after(2)
@pytest.mark.parametrize("version", list(CLUSTERS))
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("end", ENDS)
def test_a_send_at_any_line_of_an_end_shares_that_end(version: str, before: str, end: str) -> None:
    struck: set[tuple[CodeType, int]] = set()

    def is_new(frame: FrameType) -> bool:
        return (frame.f_code, frame.f_lasti) not in struck

    async def scenario(cluster: MockCluster, producer: Producer) -> None:
        await producer.partitions_for("t")
        await prepare(producer)
        played: dict[bytes, Point] = {}
        wanted: dict[bytes, Point] = {}
        for number in range(MOST_POINTS):
            taken: list[Delivery] = []
            value = b"%d" % number

            def sends(value: bytes = value, taken: list[Delivery] = taken) -> None:
                frame = sys._getframe(1)
                while frame.f_code.co_filename == source_points.__file__:
                    assert frame.f_back is not None
                    frame = frame.f_back
                struck.add((frame.f_code, frame.f_lasti))
                try:
                    taken.append(producer.send("t", value, partition=0))
                except AiokprodError:
                    return

            producer.begin_transaction()
            sent = [producer.send("t", b"before", partition=0) for _ in range(BEFORE[before])]
            if before == "records that are written":
                for each in sent:
                    await each
            point = Point(0, sends, is_new)
            point.arm()
            try:
                await (producer.commit_transaction() if ENDS[end] else producer.abort_transaction())
            finally:
                point.disarm()
            if not point.has_struck:
                break
            await prepare(producer)
            if taken:
                assert taken[0].done() and (taken[0].exception() is None or not ENDS[end]), (point, taken)
                wanted[value] = point
            played[value] = point
        seen = {value for value in await committed(cluster) if value is not None and value.isdigit()}
        if not ENDS[end]:
            wanted.clear()
        assert {played[value] for value in seen ^ set(wanted)} == set()

    run(scenario, CLUSTERS[version], linger_ms=0)
    assert len(struck) > 100


async def prepare(producer: Producer) -> None:
    """Commit a transaction with one record in each partition: what was left over would be committed with it."""
    async with producer.transaction():
        for partition in range(3):
            producer.send("t", b"beside", partition=partition)
