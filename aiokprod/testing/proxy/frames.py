"""What the proxy reads of Kafka frames, and how it damages them. Pure."""

from __future__ import annotations

import struct
from typing import Final

from aiokprod.errors import ProtocolError
from aiokprod.testing.proxy.rules import Action, Direction, ProxyFrame, ProxyRule
from aiokprod.wire.frames import decode_request_header, encode_response, response_header_flexible
from aiokprod.wire.reader import Reader

PRODUCE: Final = 0
NEVER: Final = 32767
# The requests that clients send: Kafka's name, and the first version with tagged fields in its headers.
_APIS: Final = {
    0: ("Produce", 9),
    1: ("Fetch", 12),
    2: ("ListOffsets", 6),
    3: ("Metadata", 9),
    8: ("OffsetCommit", 8),
    9: ("OffsetFetch", 6),
    10: ("FindCoordinator", 3),
    11: ("JoinGroup", 6),
    12: ("Heartbeat", 4),
    13: ("LeaveGroup", 4),
    14: ("SyncGroup", 4),
    15: ("DescribeGroups", 5),
    16: ("ListGroups", 3),
    17: ("SaslHandshake", NEVER),
    18: ("ApiVersions", 3),
    19: ("CreateTopics", 5),
    20: ("DeleteTopics", 4),
    21: ("DeleteRecords", 2),
    22: ("InitProducerId", 2),
    23: ("OffsetForLeaderEpoch", 4),
    24: ("AddPartitionsToTxn", 3),
    25: ("AddOffsetsToTxn", 3),
    26: ("EndTxn", 3),
    28: ("TxnOffsetCommit", 3),
    32: ("DescribeConfigs", 4),
    36: ("SaslAuthenticate", 2),
    37: ("CreatePartitions", 2),
    43: ("ElectLeaders", 2),
    44: ("IncrementalAlterConfigs", 1),
    45: ("AlterPartitionReassignments", 0),
    60: ("DescribeCluster", 0),
    61: ("DescribeProducers", 0),
    65: ("DescribeTransactions", 0),
    66: ("ListTransactions", 0),
    68: ("ConsumerGroupHeartbeat", 0),
    71: ("GetTelemetrySubscriptions", 0),
    72: ("PushTelemetry", 0),
    75: ("DescribeTopicPartitions", 0),
}
_FLEXIBLE_FROM: Final = {key: flexible_from for key, (_, flexible_from) in _APIS.items()}


def api_name(key: int) -> str | None:
    """Kafka's name of the request, "Api99" for one we do not know; None for what is no Kafka request."""
    if key < 0:
        return None
    return _APIS[key][0] if key in _APIS else f"Api{key}"


def answer_frame(frame: ProxyFrame, body: bytes) -> bytes:
    """A whole answer to this request (or in place of this answer), length prefix included."""
    flexible = response_header_flexible(frame.api_key, frame.version, _FLEXIBLE_FROM.get(frame.api_key, NEVER))
    return encode_response(frame.correlation_id, flexible, body)


def request_header(payload: bytes) -> tuple[int, int, int]:
    """Api key, version and correlation id; (-1, -1, -1) if the frame is too short to have them."""
    if len(payload) < 8:
        return -1, -1, -1
    key, version, correlation_id = struct.unpack_from(">hhi", payload)
    return key, version, correlation_id


def expects_answer(key: int, version: int, payload: bytes) -> bool:
    """False for a Produce request with acks=0: the broker never answers it."""
    if key != PRODUCE:
        return True
    try:
        reader = Reader(decode_request_header(payload, _FLEXIBLE_FROM).body)
        if version >= 3:
            reader.nullable_string(version >= 9)  # the transactional id
        return reader.int16() != 0
    except ProtocolError:
        return True


def damaged(rule: ProxyRule, frame: ProxyFrame, payload: bytes) -> bytes:
    """The payload with another correlation id, or with one byte changed."""
    changed = bytearray(payload)
    if rule.action == Action.WRONG_CORRELATION:
        at = 4 if frame.direction is Direction.REQUEST else 0
        struct.pack_into(">i", changed, at, frame.correlation_id ^ 0x5A5A)
    else:
        changed[rule.offset % len(changed)] ^= rule.mask
    return bytes(changed)
