"""The question that a Produce or a TxnOffsetCommit puts to the transaction's coordinator before it writes.

A broker keeps this from its clients: in the second version of the protocol it adds the partition for them (and waits a
little while markers of the transaction before are written), in the first it looks whether they did (KIP-890). Brokers
older than 3.6 do neither. Called by the handlers of both requests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiokprod.testing.mock.batch_header import BatchHeader, read_header
from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.testing.mock.handlers.api import Call, Message, Outcome, Waits
from aiokprod.testing.mock.partition import Partition, Refused
from aiokprod.testing.mock.transactions.metadata import ProducerIdentity, TopicIndex
from aiokprod.wire.codes import ErrorCode

ADDS_TO_TRANSACTION: Final = 12
"""The Produce version from which a write adds its partition to the transaction by itself (KIP-890)."""

KNOWS_ABORTABLE: Final = 11
"""The Produce version from which 120 TRANSACTION_ABORTABLE is told. broker: 10.1"""

PATIENCE_S: Final = 0.1
"""add.partitions.to.txn.retry.backoff.max.ms: so long a broker waits for the markers before it answers 51."""

COORDINATOR_TIMEOUT_S: Final = 30.0
"""So long a broker waits for another's answer, whatever the client's timeout. broker: 10.12"""

_UNREACHABLE: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


def when_answered(
    call: Call, transactional_id: str | None, asks: Callable[[], bool], serve: Callable[[], Outcome]
) -> Outcome:
    """Serve now, or when the coordinator can tell.

    That is when the transaction before has its markers (broker: 10.6), or when a frozen coordinator is awake again; the
    connection is blocked meanwhile (broker: 10.12).

    Args:
        asks: whether the coordinator has to be asked at all.
    """
    transactions = call.broker.transactions
    if not transactional_id or not asks():
        return serve()
    is_frozen = transactions.is_frozen(transactional_id, call.broker.node_id)
    if not is_frozen and not transactions.is_completing(transactional_id):
        return serve()

    async def later() -> Message | None:
        if is_frozen:
            await transactions.until_awake(transactional_id, call.broker.node_id, COORDINATOR_TIMEOUT_S)
        await transactions.until_completed(transactional_id, PATIENCE_S)
        outcome = serve()
        return await outcome.begin() if isinstance(outcome, Waits) else outcome

    return Waits(later)


def ask_coordinator(
    call: Call, transactional_id: str, who: ProducerIdentity, where: TopicIndex, *, adds: bool
) -> ErrorCode:
    """Return the coordinator's code for this write: 0, or the reason of a refusal."""
    transactions = call.broker.transactions
    ids, coordinator = transactions.transactional_ids, transactions.coordinator
    try:
        if transactional_id:
            ids.check(transactional_id, ids.node_of(transactional_id))
            if not transactions.answers(transactional_id, call.broker.node_id):
                return ErrorCode.NETWORK_EXCEPTION
    except RefusalError as refusal:
        return ErrorCode(refusal.code)
    if not adds:
        return coordinator.verify(transactional_id, who, where)
    code = coordinator.add_partitions(transactional_id, who, [where], call.broker.now_ms(), in_second_version=True)
    transactions.follow(transactional_id)
    return code


def concerns_coordinator(call: Call, partition: Partition, records: bytes) -> BatchHeader | None:
    """Return the header, if the coordinator has to be asked about this batch, else None."""
    header = read_header(records)
    if not isinstance(header, BatchHeader) or not header.is_transactional:
        return None
    producer_id, epoch = header.producer_id, header.producer_epoch
    settings = call.broker.transactions.settings
    if partition.leader != call.broker.node_id:
        return None  # the partition refuses it
    if settings.looks_at_epochs:
        is_in_it = partition.has_transaction_of(producer_id, epoch)
        if partition.is_fenced(producer_id, epoch):
            return None  # the partition refuses this too
    else:
        is_in_it = producer_id in partition.transactions.open
    if is_in_it:
        return None  # broker: 10.12 - the coordinator is asked once per partition and transaction
    if call.version < ADDS_TO_TRANSACTION and not settings.verifies:
        return None
    return header


def refuse_produce(call: Call, transactional_id: str | None, partition: Partition, records: bytes) -> Refused | None:
    """Return None if the partition may take the batch: it is not transactional, or belongs to the transaction."""
    header = None if transactional_id is None else concerns_coordinator(call, partition, records)
    if transactional_id is None or header is None:
        return None
    who = ProducerIdentity(header.producer_id, header.producer_epoch)
    adds = call.version >= ADDS_TO_TRANSACTION
    partition.first_writes.tried(who.producer_id, who.epoch, header.base_sequence, in_second_version=adds)
    code = ask_coordinator(call, transactional_id, who, (partition.name, partition.index), adds=adds)
    return None if code == ErrorCode.NONE else _refused(code, call.version)


def _refused(code: ErrorCode, version: int) -> Refused:
    if code == ErrorCode.PRODUCER_FENCED:
        return Refused(code=ErrorCode.INVALID_PRODUCER_EPOCH)  # Produce never says 90. broker: 9
    if code == ErrorCode.TRANSACTION_ABORTABLE and version < KNOWS_ABORTABLE:
        return Refused(code=ErrorCode.INVALID_TXN_STATE, message="Partition was not added to the transaction")
    is_concurrent = code == ErrorCode.CONCURRENT_TRANSACTIONS and version < ADDS_TO_TRANSACTION
    if code in _UNREACHABLE or is_concurrent:
        # Old clients know what to do with 19. broker: 10.12, 10.13
        text = "Unable to verify the partition has been added to the transaction. Underlying error: "
        return Refused(code=ErrorCode.NOT_ENOUGH_REPLICAS, message=text + code.name)
    return Refused(code=code)
