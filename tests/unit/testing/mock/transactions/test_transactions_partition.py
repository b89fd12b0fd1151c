"""Transactions in one partition: markers, the last stable offset, what stays in order and what does not."""

from __future__ import annotations

from mock_batches import batch

from aiokprod.records.decoder import decode_batches
from aiokprod.testing.mock.batch_header import TRANSACTIONAL_BIT
from aiokprod.testing.mock.log import TopicSettings
from aiokprod.testing.mock.partition import Appended, AppendOutcome, Partition, Refused

NOW_MS = 1_700_000_000_000
DAY_MS = 86_400_000
SETTINGS = TopicSettings.of({})


def partition(replicas: tuple[int, ...] = (1,)) -> Partition:
    return Partition("t", 0, list(replicas), lambda: SETTINGS)


def write(
    where: Partition, first: int, *, epoch: int = 0, pid: int = 7, version: int = 12, plain: bool = False, n: int = 1
) -> AppendOutcome:
    data = batch(
        *[b"v"] * n,
        pid=pid,
        epoch=epoch,
        first=first,
        attributes=0 if plain else TRANSACTIONAL_BIT,
        timestamp_ms=NOW_MS,
    )
    return where.append(where.leader, data, acks=1, version=version, now_ms=NOW_MS)


def code(outcome: AppendOutcome) -> int:
    return int(outcome.code) if isinstance(outcome, Refused) else 0


def test_an_open_transaction_holds_back_readers_until_its_marker() -> None:
    where = partition()
    write(where, 0, pid=8, plain=True)
    write(where, 0, n=2)
    write(where, 1, pid=8, plain=True)
    assert (where.high_watermark, where.last_stable_offset) == (4, 1)
    assert where.append_marker(7, 0, commits=True, now_ms=NOW_MS) == 5
    assert (where.high_watermark, where.last_stable_offset) == (5, 5)
    marker = where.log.batches[-1]
    assert marker.is_control and marker.is_transactional and not marker.is_abort_marker
    (read,) = decode_batches(marker.data)  # the CRC holds
    assert read.base_offset == 4 and len(read.records()) == 1


def test_the_marker_of_the_second_version_begins_the_sequences_again() -> None:
    where = partition()
    write(where, 0, n=3)
    where.append_marker(7, 1, commits=True, now_ms=NOW_MS)
    assert code(write(where, 3)) == 47
    assert code(write(where, 3, epoch=1)) == 45
    assert code(write(where, 0, epoch=1)) == 0


def test_the_marker_of_the_first_version_lets_sequences_go_on_and_remembers_batches() -> None:
    where = partition()
    first = write(where, 0, n=3)
    where.append_marker(7, 0, commits=False, now_ms=NOW_MS)
    assert where.log.batches[-1].is_abort_marker
    again = write(where, 0, n=3)
    assert isinstance(again, Appended) and isinstance(first, Appended)
    assert again.is_duplicate and again.base_offset == first.base_offset
    assert code(write(where, 3)) == 0 and code(write(where, 9)) == 45


def test_a_marker_of_an_unknown_producer_makes_it_known() -> None:
    where = partition()
    where.append_marker(7, 3, commits=False, now_ms=NOW_MS)
    assert code(write(where, 0, epoch=2)) == 47 and code(write(where, 0, epoch=3)) == 0


def test_the_first_write_of_the_second_version_carries_sequence_zero() -> None:
    where = partition()
    assert code(write(where, 1, pid=8)) == 0  # it was not said that this one speaks the second version
    where.first_writes.tried(7, 0, 1, in_second_version=True)
    assert code(write(where, 1)) == 45
    where.first_writes.tried(7, 0, 0, in_second_version=True)
    assert code(write(where, 0)) == 0 and code(write(where, 1)) == 0


def test_a_first_write_that_was_refused_binds_what_comes_after_it() -> None:
    where = partition()
    where.first_writes.tried(7, 0, 3, in_second_version=False)
    assert code(write(where, 4)) == 45 and code(write(where, 4, plain=True)) == 45
    assert code(write(where, 3)) == 0 and code(write(where, 4)) == 0
    where.append_marker(7, 0, commits=True, now_ms=NOW_MS)
    where.first_writes.tried(7, 0, 5, in_second_version=False)
    where.first_writes.tried(7, 0, 9, in_second_version=False)
    where.elect(1)  # the new leader was not asked
    assert code(write(where, 5)) == 0


def test_a_first_write_of_the_next_transaction_is_not_forgotten_with_the_marker() -> None:
    where = partition()
    assert code(write(where, 0)) == 0
    where.first_writes.tried(7, 1, 2, in_second_version=True)
    where.append_marker(7, 1, commits=True, now_ms=NOW_MS)
    assert code(write(where, 2, epoch=1)) == 45
    where.first_writes.tried(7, 1, 0, in_second_version=True)
    assert code(write(where, 0, epoch=1)) == 0 and code(write(where, 1, epoch=1)) == 0


def test_a_plain_batch_of_a_producer_in_a_transaction_is_refused() -> None:
    where = partition()
    write(where, 0)
    assert code(write(where, 1, plain=True)) == 48 and code(write(where, 5, plain=True)) == 45
    assert code(write(where, 0, pid=8, plain=True)) == 0
    where.append_marker(7, 0, commits=True, now_ms=NOW_MS)
    assert code(write(where, 1, plain=True)) == 0


def test_a_producer_with_an_open_transaction_is_not_forgotten() -> None:
    where = partition()
    write(where, 0)
    states = where.replicas[1].states
    assert states.expire(NOW_MS + DAY_MS, DAY_MS, where.transactions.open) == 0
    assert where.has_transaction_of(7, 0) and not where.has_transaction_of(7, 1) and not where.has_transaction_of(8, 0)
    where.append_marker(7, 0, commits=True, now_ms=NOW_MS + DAY_MS)
    assert not where.has_transaction_of(7, 0)
    assert states.expire(NOW_MS + DAY_MS + 1, DAY_MS, where.transactions.open) == 0  # the marker's time counts
    assert states.expire(NOW_MS + 2 * DAY_MS, DAY_MS, where.transactions.open) == 1


def test_a_marker_that_the_new_leader_lacks_leaves_the_transaction_open() -> None:
    where = partition((1, 2))
    write(where, 0)
    where.freeze([2], frozen=True)
    where.append_marker(7, 1, commits=False, now_ms=NOW_MS)
    assert (where.high_watermark, where.last_stable_offset) == (1, 0)
    assert where.transactions.aborted
    where.elect(2, lose_uncopied=True)
    assert where.log.end_offset == 1 and where.transactions.open == {7: 0} and not where.transactions.aborted
    assert where.has_transaction_of(7, 0)


def test_followers_learn_of_markers() -> None:
    where = partition((1, 2))
    write(where, 0)
    where.append_marker(7, 1, commits=True, now_ms=NOW_MS)
    where.elect(2)
    assert code(write(where, 1)) == 47 and code(write(where, 0, epoch=1)) == 0
