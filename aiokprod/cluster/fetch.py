"""One Metadata request on one connection, and whether its answer is to be believed.

Stateless; called by the `ClusterClient` for the cache, and for every new produce connection.

Invariants: an answer of another cluster is never taken (`# faults: T18`); one that names no broker that can be dialled,
or carries an error at its top, is no answer (`# faults: T17`); a large one leaves the loop room while it is decoded
(`# faults: T19`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

from aiokprod.cluster.answer_limits import metadata_bytes, metadata_partitions
from aiokprod.cluster.connection import BrokerConnection
from aiokprod.cluster.slices import in_slices
from aiokprod.cluster.snapshot import MAX_BROKERS, names_a_broker
from aiokprod.errors import BrokerAnswerError, ClusterIdMismatchError, ProtocolError
from aiokprod.logs import printable
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.exchange import NO_BODY
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiokprod.wire.metadata_slices import decode_metadata_slices

LOWEST_VERSION: Final = 4
"""From here on a client can forbid that asking creates a topic; every Kafka since 1.0 has it."""

BYTES_PER_SLICE: Final = 32 * 1024
"""About 5 ms of decoding."""

ID_LIMIT: Final = 100

MAX_CLUSTER_ID: Final = 255
"""Characters; Kafka's have 22. It is kept as long as the client, and compared with each answer."""


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
        connection: on which; it is closed if the answer cannot be read.
        topics: their names; none asks for the brokers alone.
        cluster_id: of our cluster; None if it is not known yet.
        allow_auto_topic_creation: may asking create a topic, if the broker does such things?
        timeout_s: for the answer.

    Raises:
        ConnectionLostError: no answer.
        ProtocolError: no readable answer.
        BrokerAnswerError: an error instead; `code` says which (129: go back to the bootstrap servers, KIP-1102).
        ClusterIdMismatchError: it belongs to another cluster; the connection is closed.

    Cancellation: the answer will be dropped.
    """
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=allow_auto_topic_creation,
    )
    version = connection.versions.pick(MetadataRequest.API_KEY, LOWEST_VERSION, MetadataRequest.MAX_VERSION)
    names = frozenset(topic.name for topic in request.topics or () if topic.name is not None)
    body = await connection.call(
        MetadataRequest,
        version,
        request.encode(version),
        timeout_s=timeout_s,
        max_answer_bytes=metadata_bytes(len(names)),
    )
    broken: ProtocolError | None = None
    try:
        answer = await _decode(body, version, names)
    except ProtocolError as error:
        broken = error.clone()
    if broken is not None:
        body = NO_BODY  # errors are kept, and their tracebacks would keep it
        connection.close(broken)
        raise broken
    connection.mute(answer.throttle_time_ms / 1000)
    _judge(answer, connection, cluster_id)
    return answer


async def check_cluster(connection: BrokerConnection, cluster_id: str, *, timeout_s: float) -> None:
    """Make sure that a new connection leads to our cluster, before any record goes there.

    Raises:
        ClusterIdMismatchError: it does not; the connection is closed.
        ConnectionLostError, ProtocolError, BrokerAnswerError: as `fetch_metadata`.
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
    who = f"broker {connection.host}:{connection.port}"
    if answer.error_code != ErrorCode.NONE:
        raise BrokerAnswerError(
            f"{who} answered {name_of(answer.error_code)} to a Metadata request",
            code=answer.error_code,
            broker=connection.node_id,
        )
    if answer.cluster_id is not None and len(answer.cluster_id) > MAX_CLUSTER_ID:
        raise BrokerAnswerError(
            f"{who} names a cluster id of {len(answer.cluster_id)} characters", broker=connection.node_id
        )
    if cluster_id is not None and answer.cluster_id is not None and answer.cluster_id != cluster_id:
        mismatch = ClusterIdMismatchError(
            f"{who} belongs to cluster {printable(answer.cluster_id, ID_LIMIT)},"
            f" not to {printable(cluster_id, ID_LIMIT)}",
            broker=connection.node_id,
        )
        connection.close(mismatch)
        raise mismatch
    if not names_a_broker(answer.brokers):
        raise BrokerAnswerError(f"{who} names no broker that can be dialled", broker=connection.node_id)
