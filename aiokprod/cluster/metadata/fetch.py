"""One Metadata request on one connection, and the checks that its answer must pass.

Stateless; called by the `ClusterClient` for the cache, and for every new produce connection.

Invariants: an answer of another cluster is never accepted (`# faults: T18`), nor one that names no broker that can be
dialled, or has a top-level error (`# faults: T17`); the loop can run while a large answer is decoded (`# faults: T19`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from aiokprod.cluster.connection.answer_limits import metadata_bytes, metadata_partitions
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.hosts import address_of
from aiokprod.cluster.metadata.slices import in_slices
from aiokprod.cluster.metadata.snapshot import MAX_BROKERS, names_a_broker
from aiokprod.errors import BrokerAnswerError, ClusterIdMismatchError, ProtocolError
from aiokprod.logs import printable
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.exchange import NO_BODY
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiokprod.wire.metadata_slices import decode_metadata_slices
from aiokprod.wire.versions import LOWEST_METADATA

BYTES_PER_SLICE: Final = 32 * 1024
"""About 5 ms of decoding."""

ID_LIMIT: Final = 100

MAX_CLUSTER_ID: Final = 255
"""Characters; Kafka's ids have 22. The id is kept as long as the client, and compared with each answer."""


async def fetch_metadata(
    connection: BrokerConnection,
    topics: Iterable[str],
    *,
    cluster_id: str | None,
    allow_auto_topic_creation: bool,
    timeout_s: float,
) -> MetadataResponse:
    """Ask a broker about these topics, and about all brokers.

    Args:
        connection: the connection; it is closed if the answer cannot be read.
        topics: names of topics; without any, only the brokers are asked for.
        cluster_id: the id of the known cluster; None if it is not known yet.
        allow_auto_topic_creation: True lets the broker create the topics, if its configuration allows that.
        timeout_s: timeout of the answer.

    Raises:
        ConnectionLostError: no answer came.
        ProtocolError: the answer cannot be read.
        BrokerAnswerError: the answer is an error; `code` says which (REBOOTSTRAP_REQUIRED, 129: start again at the
            bootstrap servers, KIP-1102).
        ClusterIdMismatchError: the broker belongs to another cluster; the connection is closed.

    Cancellation: the answer will be dropped.
    """
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=allow_auto_topic_creation,
    )
    version = connection.versions.pick(MetadataRequest.API_KEY, LOWEST_METADATA, MetadataRequest.MAX_VERSION)
    names = frozenset(topic.name for topic in request.topics or () if topic.name is not None)
    body = await connection.call(
        MetadataRequest,
        version,
        request.encode(version),
        timeout_s=timeout_s,
        max_answer_bytes=metadata_bytes(len(names)),
    )
    try:
        answer = await _decode(body, version, names)
    except ProtocolError as error:
        broken = error.clone()
    else:
        connection.mute(answer.throttle_time_ms / 1000)
        _judge(answer, connection, cluster_id)
        return answer
    body = NO_BODY  # errors are kept, and this frame in their traceback would keep the bytes
    connection.close(broken)
    raise broken


async def check_cluster(connection: BrokerConnection, cluster_id: str, *, timeout_s: float) -> None:
    """Check that a new connection leads to the known cluster, before any record is sent on it.

    Raises:
        ClusterIdMismatchError: it leads to another one; the connection is closed.
        ConnectionLostError, ProtocolError, BrokerAnswerError: as for `fetch_metadata`.
    """
    await fetch_metadata(connection, (), cluster_id=cluster_id, allow_auto_topic_creation=False, timeout_s=timeout_s)


async def _decode(body: memoryview, version: int, asked: Collection[str]) -> MetadataResponse:
    slices = decode_metadata_slices(
        body,
        version,
        BYTES_PER_SLICE,
        asked=asked,
        max_brokers=MAX_BROKERS,
        max_partitions=metadata_partitions(len(asked)),
    )
    return await in_slices(slices)


def _judge(answer: MetadataResponse, connection: BrokerConnection, cluster_id: str | None) -> None:
    broker = f"broker {address_of(connection.host, connection.port)}"
    if answer.error_code != ErrorCode.NONE:
        raise BrokerAnswerError(
            f"{broker} answered {name_of(answer.error_code)} to a Metadata request",
            code=answer.error_code,
            broker=connection.node_id,
        )
    if answer.cluster_id is not None and len(answer.cluster_id) > MAX_CLUSTER_ID:
        raise BrokerAnswerError(
            f"{broker} names a cluster id of {len(answer.cluster_id)} characters", broker=connection.node_id
        )
    if cluster_id is not None and answer.cluster_id is not None and answer.cluster_id != cluster_id:
        mismatch = ClusterIdMismatchError(
            f"{broker} belongs to cluster {printable(answer.cluster_id, ID_LIMIT)},"
            f" not to {printable(cluster_id, ID_LIMIT)}",
            broker=connection.node_id,
        )
        connection.close(mismatch)
        raise mismatch
    if not names_a_broker(answer.brokers):
        raise BrokerAnswerError(f"{broker} names no broker that can be dialled", broker=connection.node_id)
