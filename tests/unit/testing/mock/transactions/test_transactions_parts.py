"""The pure parts beside the coordinator: the index of a log, where coordinators are, offsets, markers, releases."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aiokprod.records.decoder import decode_batches
from aiokprod.testing.mock import RefusalError
from aiokprod.testing.mock.kafka_versions import RELEASES, release_of, transaction_version_of
from aiokprod.testing.mock.transaction_index import EndedTransaction, TransactionIndex
from aiokprod.testing.mock.transaction_markers import marker_batch
from aiokprod.testing.mock.transactions.directory import CoordinatorDirectory, partition_of
from aiokprod.testing.mock.transactions.metadata import ProducerIdentity
from aiokprod.testing.mock.transactions.offsets import CommittedOffset, GroupOffsets, offsets_partition


@dataclass(frozen=True)
class Batch:
    base_offset: int
    producer_id: int
    is_transactional: bool = True
    is_control: bool = False
    is_abort_marker: bool = False


def abort(offset: int, producer_id: int) -> Batch:
    return Batch(offset, producer_id, is_control=True, is_abort_marker=True)


def commit(offset: int, producer_id: int) -> Batch:
    return Batch(offset, producer_id, is_control=True)


# ---------------------------------------------------------------------- the index


def test_readers_stop_before_the_first_open_transaction() -> None:
    index = TransactionIndex()
    assert index.last_stable_offset(7) == 7
    for batch in (Batch(2, 5), Batch(3, 6), Batch(4, 5), Batch(5, 8, is_transactional=False)):
        index.note(batch)
    assert index.open == {5: 2, 6: 3} and index.last_stable_offset(9) == 2
    index.note(commit(6, 5))
    assert index.last_stable_offset(9) == 3
    index.note(abort(7, 6))
    assert index.last_stable_offset(9) == 9


def test_a_verdict_counts_when_its_marker_is_replicated() -> None:
    index = TransactionIndex()
    for batch in (Batch(2, 5), abort(3, 5)):
        index.note(batch)
    assert index.last_stable_offset(2) == 2 and index.last_stable_offset(3) == 2
    assert index.last_stable_offset(4) == 4


def test_aborted_transactions_are_told_where_they_reach_into() -> None:
    index = TransactionIndex()
    for batch in (Batch(2, 5), Batch(3, 6), abort(4, 5), Batch(5, 7), commit(6, 7), abort(8, 6), abort(9, 6)):
        index.note(batch)
    first, second = EndedTransaction(5, 2, 4), EndedTransaction(6, 3, 8)
    assert index.aborted == [first, second]  # a marker where nothing was written aborts nothing
    assert index.aborted_within(0, 9) == [first, second] and index.aborted_within(5, 9) == [second]
    assert index.aborted_within(0, 3) == [first] and index.aborted_within(9, 99) == []


def test_a_cut_log_is_read_again() -> None:
    index = TransactionIndex()
    batches = [Batch(2, 5), abort(3, 5), Batch(4, 6), abort(5, 6)]
    for batch in batches:
        index.note(batch)
    index.rebuild(batches[:3])
    assert index.open == {6: 4} and index.aborted == [EndedTransaction(5, 2, 3)]
    assert index.last_stable_offset(9) == 4


# ---------------------------------------------------------------------- where coordinators are


def test_a_key_belongs_to_the_partition_that_javas_hash_gives() -> None:
    assert [partition_of(key) for key in ("", "tx", "orders-7", "é\U0001f600", "polygenelubricants")] == [
        0, 16, 5, 12, 0,
    ]  # fmt: skip


def test_the_next_live_node_takes_over_and_keeps_what_it_took() -> None:
    nodes = {1: True, 2: True, 3: True}
    directory = CoordinatorDirectory(lambda: list(nodes.items()))
    first = directory.node_of("tx")
    assert first == 1 + partition_of("tx") % 3
    directory.check("tx", first)
    nodes[first] = False
    second = directory.node_of("tx")
    assert second == first % 3 + 1
    with pytest.raises(RefusalError) as refused:
        directory.check("tx", first)
    assert refused.value.code == 16
    nodes[first] = True
    assert directory.node_of("tx") == second
    nodes.update({1: False, 2: False, 3: False})
    with pytest.raises(RefusalError) as refused:
        directory.check("tx", second)
    assert refused.value.code == 15


def test_a_coordinator_is_moved_and_loads_its_log() -> None:
    directory = CoordinatorDirectory(lambda: [(1, True), (2, True)])
    other = 3 - directory.node_of("tx")
    directory.move("tx", other)
    assert directory.node_of("tx") == other
    directory.set_loading("tx", True)
    with pytest.raises(RefusalError) as refused:
        directory.check("tx", other)
    assert refused.value.code == 14
    directory.set_loading("tx", False)
    directory.check("tx", other)
    with pytest.raises(ValueError, match="no broker 9"):
        directory.move("tx", 9)


# ---------------------------------------------------------------------- offsets


def test_an_offset_of_a_transaction_counts_after_its_commit() -> None:
    offsets, who, where = GroupOffsets(), ProducerIdentity(7, 0), ("t", 0)
    log = offsets_partition("g")[1]
    offsets.commit("g", where, CommittedOffset(1))
    assert offsets.commit_in_transaction("g", who, where, CommittedOffset(5)) == 0
    assert offsets.unstable("g") == {where}
    assert offsets.offsets("g") == {where: CommittedOffset(1)}
    offsets.end(log + 1, who, commits=True)  # the marker of another partition
    offsets.end(log, ProducerIdentity(8, 0), commits=True)  # and of another producer
    assert offsets.unstable("g")
    offsets.end(log, who, commits=True)
    assert offsets.offsets("g") == {where: CommittedOffset(5)} and not offsets.unstable("g")


def test_an_offset_of_an_aborted_transaction_is_gone() -> None:
    offsets, who, where = GroupOffsets(), ProducerIdentity(7, 0), ("t", 0)
    assert not offsets.knows("g")
    offsets.commit_in_transaction("g", who, where, CommittedOffset(5))
    assert offsets.knows("g")
    offsets.end(offsets_partition("g")[1], who, commits=False)
    assert offsets.offsets("g") == {} and not offsets.unstable("g")


def test_the_offset_written_last_wins_and_not_the_transaction_that_ended_last() -> None:
    offsets, who, where = GroupOffsets(), ProducerIdentity(7, 0), ("t", 0)
    offsets.commit_in_transaction("g", who, where, CommittedOffset(5))
    offsets.commit("g", where, CommittedOffset(9))
    offsets.end(offsets_partition("g")[1], who, commits=True)
    assert offsets.offsets("g") == {where: CommittedOffset(9)}


def test_an_epoch_that_is_over_commits_nothing() -> None:
    offsets, where = GroupOffsets(), ("t", 0)
    offsets.end(offsets_partition("g")[1], ProducerIdentity(7, 3), commits=False)
    assert offsets.commit_in_transaction("g", ProducerIdentity(7, 2), where, CommittedOffset(1)) == 47
    assert offsets.commit_in_transaction("g", ProducerIdentity(7, 3), where, CommittedOffset(1)) == 0
    assert offsets.commit_in_transaction("g", ProducerIdentity(7, 2), where, CommittedOffset(1)) == 47


# ---------------------------------------------------------------------- markers and releases


@pytest.mark.parametrize(("commits", "key"), [(True, b"\0\0\0\1"), (False, b"\0\0\0\0")])
def test_a_marker_is_a_control_batch_of_its_producer(commits: bool, key: bytes) -> None:
    (batch,) = decode_batches(marker_batch(7, 3, commits=commits, now_ms=99, coordinator_epoch=4))
    (record,) = batch.records()
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.attributes) == (7, 3, -1, 0x30)
    assert (record.key, record.value, record.timestamp_ms) == (key, b"\0\0\0\0\0\4", 99)


def test_releases_offer_what_they_had() -> None:
    served = {0: (0, 13), 1: (4, 18), 10: (0, 6), 22: (0, 5), 66: (0, 2), 999: (0, 1)}
    lowest = dict.fromkeys(served, 0)
    assert RELEASES["4.3"].advertised(served, lowest) == served
    assert RELEASES["3.9"].advertised(served, lowest) == {0: (0, 11), 1: (0, 17), 10: (0, 6), 22: (0, 5), 66: (0, 1)}
    assert RELEASES["2.8"].advertised(served, lowest) == {0: (0, 9), 1: (0, 12), 10: (0, 3), 22: (0, 4)}
    assert RELEASES["2.1"].advertised(served, lowest) == {0: (0, 7), 1: (0, 10), 10: (0, 2), 22: (0, 1)}
    later = lowest | {0: 3, 1: 4}
    assert RELEASES["2.1"].advertised(served, later) == {0: (3, 7), 1: (4, 10), 10: (0, 2), 22: (0, 1)}


def test_a_release_is_found_by_its_number() -> None:
    assert release_of("3.9.1") is RELEASES["3.9"]
    for unknown in ("3.7", "4", "nonsense"):
        with pytest.raises(ValueError, match=r"the mock knows Kafka 2.1, 2.8, 3.9, 4.3"):
            release_of(unknown)


def test_transaction_versions_belong_to_releases() -> None:
    newest, old = RELEASES["4.3"], RELEASES["3.9"]
    assert [transaction_version_of(newest, asked) for asked in (None, 0, 1, 2)] == [2, 0, 1, 2]
    assert [transaction_version_of(old, asked) for asked in (None, 0)] == [0, 0]
    for release, asked in ((newest, 3), (old, 1), (old, 2)):
        with pytest.raises(ValueError, match="no transaction version"):
            transaction_version_of(release, asked)
