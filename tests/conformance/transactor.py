"""`Transactor`: one transactional id, its coordinator, and the requests of a transactional producer, one at a time.

A case makes as many as it has instances of the application. Nothing is retried but what only says "not yet", and each
request's producer id, epoch and version can be chosen.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from asker import Asker, Written, produce_request, written
from conformance_targets import Target
from wire_batches import sequenced, with_field

from aiokprod.wire.codes import ErrorCode as E
from aiokprod.wire.messages import add_offsets_to_txn as adding_offsets
from aiokprod.wire.messages import add_partitions_to_txn as adding
from aiokprod.wire.messages import end_txn as ending
from aiokprod.wire.messages import find_coordinator as finding
from aiokprod.wire.messages import init_producer_id as initialising
from aiokprod.wire.messages import txn_offset_commit as committing
from aiokprod.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

TRANSACTIONAL: Final = 0x10
PATIENCE_S: Final = 120.0
LATEST: Final = -1
READ_COMMITTED: Final = 1
NOT_YET: Final = frozenset(
    {E.COORDINATOR_LOAD_IN_PROGRESS, E.COORDINATOR_NOT_AVAILABLE, E.NOT_COORDINATOR, E.CONCURRENT_TRANSACTIONS}
)

OLD, VERIFIED, VERSION_1, NEW = (2, 8), (3, 9), (3, 9, 1), (4, 0)
"""2.8 verifies nothing; 3.9 asks the coordinator, as does 4.3 with transaction.version 0; with 1 it adds partitions by
itself to v12; with 2, a new 4.x cluster, each end bumps the epoch (KIP-890)."""


class Identity(NamedTuple):
    """The identity that InitProducerId and EndTxn v5 give."""

    code: int
    pid: int
    epoch: int


def until_settled(ask: Callable[[], Identity]) -> Identity:
    """Ask again while the answer only says that it is too early."""
    deadline = time.monotonic() + PATIENCE_S
    while (answer := ask()).code in NOT_YET and time.monotonic() < deadline:
        time.sleep(0.01)
    return answer


class Transactor:
    """One instance of an application with a transactional id."""

    def __init__(self, target: Target, transactional_id: str | None = None, timeout_ms: int = 60_000) -> None:
        self.target = target
        self.id = transactional_id or f"conform-{uuid.uuid4().hex[:12]}"
        self.timeout_ms = timeout_ms
        self.coordinator = self.find(self.id, kind=1)
        self.pid = self.epoch = -1

    # ------------------------------------------------------------------ identity

    def init(self, pid: int = -1, epoch: int = -1, *, version: int = 4, timeout_ms: int | None = None) -> Identity:
        """Send InitProducerId until it is decided."""
        return until_settled(lambda: self.init_once(pid, epoch, version=version, timeout_ms=timeout_ms))

    def init_once(self, pid: int = -1, epoch: int = -1, *, version: int = 4, timeout_ms: int | None = None) -> Identity:
        request = initialising.InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=self.timeout_ms if timeout_ms is None else timeout_ms,
            producer_id=pid,
            producer_epoch=epoch,
        )
        answer = self.coordinator.ask(request, initialising.InitProducerIdResponse, version)
        return Identity(answer.error_code, answer.producer_id, answer.producer_epoch)

    def begin(self) -> Transactor:
        """Initialise and keep what was given."""
        code, self.pid, self.epoch = self.init()
        assert code == 0
        return self

    # ------------------------------------------------------------------ what goes into a transaction

    def add(self, *partitions: tuple[str, int], version: int = 3, pid: int | None = None) -> dict[tuple[str, int], int]:
        """Send AddPartitionsToTxn until it is decided; return the code of each partition."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            codes = self.add_once(*partitions, version=version, pid=pid)
            if not set(codes.values()) & NOT_YET or time.monotonic() > deadline:
                return codes
            time.sleep(0.01)

    def add_once(
        self, *partitions: tuple[str, int], version: int = 3, pid: int | None = None
    ) -> dict[tuple[str, int], int]:
        request = adding.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.pid if pid is None else pid,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[adding.AddPartitionsToTxnTopic(name=name, partitions=[p]) for name, p in partitions],
        )
        answer = self.coordinator.ask(request, adding.AddPartitionsToTxnResponse, version)
        return {
            (topic.name, each.partition_index): each.partition_error_code
            for topic in answer.results_by_topic_v3_and_below
            for each in topic.results_by_partition
        }

    def write(
        self,
        topic: str,
        first: int,
        count: int = 1,
        *,
        version: int | None = None,
        epoch: int | None = None,
        acks: int = -1,
    ) -> Written:
        """Send one batch of the transaction to partition 0."""
        broker = self.target.connect_to_leader(topic)
        version = broker.produce_version if version is None else version
        request = produce_request({(topic, 0): self.batch(first, count, epoch=epoch)}, acks=acks)
        request.transactional_id = self.id
        deadline = time.monotonic() + PATIENCE_S
        while True:
            broker.send(request, version)
            got = written(broker.one_partition(version))
            if got.code not in NOT_YET or time.monotonic() > deadline:
                return got
            time.sleep(0.01)

    def batch(self, first: int, count: int = 1, *, epoch: int | None = None) -> bytes:
        plain = sequenced(self.pid, first, count, epoch=self.epoch if epoch is None else epoch)
        return with_field(plain, attributes=TRANSACTIONAL)

    def add_offsets(self, group: str, *, version: int = 3) -> int:
        request = adding_offsets.AddOffsetsToTxnRequest(
            transactional_id=self.id, producer_id=self.pid, producer_epoch=self.epoch, group_id=group
        )

        def ask() -> Identity:
            answer = self.coordinator.ask(request, adding_offsets.AddOffsetsToTxnResponse, version)
            return Identity(answer.error_code, -1, -1)

        return until_settled(ask).code

    def commit_offset(self, group: str, topic: str, offset: int, *, version: int = 3, **member: Any) -> int:
        """Send TxnOffsetCommit for partition 0 until it is decided; `member` has fields of the request."""
        broker = self.find(group, kind=0)
        partition = committing.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        request = committing.TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.pid,
            producer_epoch=self.epoch,
            topics=[committing.TxnOffsetCommitRequestTopic(name=topic, partitions=[partition])],
            **member,
        )

        def ask() -> Identity:
            answer = broker.ask(request, committing.TxnOffsetCommitResponse, version)
            return Identity(answer.topics[0].partitions[0].error_code, -1, -1)

        return until_settled(ask).code

    # ------------------------------------------------------------------ its end

    def end(
        self, committed: bool, *, version: int | None = None, pid: int | None = None, epoch: int | None = None
    ) -> Identity:
        """EndTxn, until it is decided; nothing is adopted."""
        version = self.newest_end if version is None else version
        request = ending.EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.pid if pid is None else pid,
            producer_epoch=self.epoch if epoch is None else epoch,
            committed=committed,
        )

        def ask() -> Identity:
            answer = self.coordinator.ask(request, ending.EndTxnResponse, version)
            return Identity(answer.error_code, answer.producer_id, answer.producer_epoch)

        return until_settled(ask)

    def finish(self, committed: bool) -> None:
        """End it and adopt what EndTxn v5 gives."""
        answer = self.end(committed)
        assert answer.code == 0
        if self.newest_end >= 5:
            self.pid, self.epoch = answer.pid, answer.epoch

    @property
    def newest_end(self) -> int:
        return self.target.by_rules({(2, 8): 3, (3, 9): 4, (4, 0): 5})

    def find(self, key: str, kind: int) -> Asker:
        request = finding.FindCoordinatorRequest(key=key, key_type=kind)
        broker = self.target.connect()
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = broker.ask(request, finding.FindCoordinatorResponse, 2)
            if answer.error_code == 0:
                return self.target.connect(answer.node_id)
            assert answer.error_code == E.COORDINATOR_NOT_AVAILABLE and time.monotonic() < deadline, answer
            time.sleep(0.05)


def opened(target: Target, topic: str, records: int = 1) -> Transactor:
    """Open a transaction with one batch in it, the partition added as this version needs it."""
    it = Transactor(target).begin()
    add_if_needed(it, topic)
    assert it.write(topic, 0, records).code == 0
    return it


def add_if_needed(it: Transactor, topic: str) -> None:
    if it.target.rules < NEW:
        assert it.add((topic, 0)) == {(topic, 0): 0}


def stable_offset(target: Target, topic: str) -> int:
    asked = ListOffsetsPartition(partition_index=0, timestamp=LATEST, current_leader_epoch=-1)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=READ_COMMITTED, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]
    )
    answer = target.connect_to_leader(topic).ask(request, ListOffsetsResponse, 5)
    return answer.topics[0].partitions[0].offset


def until_stable(target: Target, topic: str, offset: int) -> None:
    """Wait for the last stable offset, as markers are written after EndTxn is answered (broker: 12.3)."""
    deadline = time.monotonic() + PATIENCE_S
    while stable_offset(target, topic) != offset and time.monotonic() < deadline:
        time.sleep(0.01)
    assert stable_offset(target, topic) == offset
