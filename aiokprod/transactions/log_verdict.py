"""How a prepared transaction ended, by the log of its partitions: where the coordinator cannot tell any more."""

from __future__ import annotations

import asyncio
from typing import Final

from aiokprod.cluster.client import ClusterClient
from aiokprod.errors import AiokprodError, ProtocolError
from aiokprod.records.decoder import DecodedBatch, decode_batches
from aiokprod.transactions.ending_codes import LoggedBatch, LogSays, log_says
from aiokprod.transactions.prepared import PreparedPartition, PreparedTransaction
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

CONSUMER: Final = -1
FETCHED_BYTES: Final = 4096
"""A broker gives at least one whole batch."""
LONGEST_ASK_S: Final = 30.0
READ_COMMITTED: Final = 1
_GONE: Final = frozenset({ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


async def ask_log(client: ClusterClient, prepared: PreparedTransaction, deadline: float) -> LogSays:
    """Ask the partitions of the transaction, one after the other, until one tells how it ended.

    Args:
        client: a started one.
        prepared: the transaction.
        deadline: loop time, seconds.

    Returns:
        OPEN if a partition may tell later: it has no marker yet, or does not answer. NOTHING if none will.
    """
    says = LogSays.NOTHING
    for each in prepared.partitions:
        if each.first_offset < 0:
            continue  # no broker told where its records are
        try:
            found = await _ask_partition(client, prepared, each, deadline)
        except ProtocolError:
            found = LogSays.NOTHING
        except AiokprodError:
            client.refresh(f"the end of a transaction is looked for in {each.topic}-{each.partition}")
            found = LogSays.OPEN
        if found is LogSays.COMMITTED or found is LogSays.ABORTED:
            return found
        if found is LogSays.OPEN:
            says = found
    return says


async def _ask_partition(
    client: ClusterClient, prepared: PreparedTransaction, where: PreparedPartition, deadline: float
) -> LogSays:
    left_s = min(LONGEST_ASK_S, max(0.05, deadline - asyncio.get_running_loop().time()))
    topic = client.topic(where.topic)
    if topic is None:
        client.want(where.topic)
        await client.refreshed(left_s)
        topic = client.topic(where.topic)
    if topic is None or where.partition >= len(topic.partitions):
        known = client.last_error(where.topic)
        is_gone = known is not None and known[0] in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        )
        return LogSays.NOTHING if is_gone or topic is not None else LogSays.OPEN
    leader = topic.partitions[where.partition]
    if leader.leader_id < 0:
        return LogSays.OPEN
    wanted = FetchPartition(
        partition=where.partition,
        current_leader_epoch=leader.leader_epoch,
        fetch_offset=where.first_offset,
        partition_max_bytes=FETCHED_BYTES,
    )
    request = FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=FETCHED_BYTES,
        isolation_level=READ_COMMITTED,
        session_epoch=-1,
        topics=[FetchTopic(topic=where.topic, topic_id=topic.topic_id, partitions=[wanted])],
    )
    answer: FetchResponse = await client.request(request, node_id=leader.leader_id, timeout_s=left_s)
    data = [each for item in answer.responses for each in item.partitions if each.partition_index == where.partition]
    code = answer.error_code or (data[0].error_code if data else int(ErrorCode.UNKNOWN_SERVER_ERROR))
    if code in _GONE:
        return LogSays.NOTHING
    if code:
        client.refresh(f"{where.topic}-{where.partition} cannot be read")
        return LogSays.OPEN
    return _read(prepared, where, data[0])


def _read(prepared: PreparedTransaction, where: PreparedPartition, data: PartitionData) -> LogSays:
    first = next(iter(decode_batches(data.records or b"")), None)
    return log_says(
        (prepared.producer_id, prepared.epoch),
        where.first_offset,
        where.last_offset,
        None if first is None else _header(first),
        data.last_stable_offset,
        [(each.producer_id, each.first_offset) for each in data.aborted_transactions or ()],
    )


def _header(batch: DecodedBatch) -> LoggedBatch:
    return LoggedBatch(
        batch.producer_id,
        batch.producer_epoch,
        batch.base_offset,
        batch.base_offset + batch.last_offset_delta,
        batch.count,
        batch.is_transactional,
        batch.is_control,
    )
