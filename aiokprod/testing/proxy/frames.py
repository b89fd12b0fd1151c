"""What the proxy reads of Kafka frames, and how it damages them. Pure."""

from __future__ import annotations

import struct
from typing import Final

from aiokprod.testing.proxy.rules import Action, Direction, ProxyFrame, ProxyRule
from aiokprod.wire.frames import decode_request_header
from aiokprod.wire.reader import Reader

PRODUCE: Final = 0
# The requests that clients send; any other one goes by its number ("Api42").
_API_NAMES: Final = {
    0: "Produce",
    1: "Fetch",
    2: "ListOffsets",
    3: "Metadata",
    8: "OffsetCommit",
    9: "OffsetFetch",
    10: "FindCoordinator",
    11: "JoinGroup",
    12: "Heartbeat",
    13: "LeaveGroup",
    14: "SyncGroup",
    15: "DescribeGroups",
    16: "ListGroups",
    17: "SaslHandshake",
    18: "ApiVersions",
    19: "CreateTopics",
    20: "DeleteTopics",
    21: "DeleteRecords",
    22: "InitProducerId",
    23: "OffsetForLeaderEpoch",
    24: "AddPartitionsToTxn",
    25: "AddOffsetsToTxn",
    26: "EndTxn",
    28: "TxnOffsetCommit",
    32: "DescribeConfigs",
    36: "SaslAuthenticate",
    37: "CreatePartitions",
    43: "ElectLeaders",
    44: "IncrementalAlterConfigs",
    45: "AlterPartitionReassignments",
    60: "DescribeCluster",
    61: "DescribeProducers",
    65: "DescribeTransactions",
    66: "ListTransactions",
    68: "ConsumerGroupHeartbeat",
    71: "GetTelemetrySubscriptions",
    72: "PushTelemetry",
    75: "DescribeTopicPartitions",
}


def api_name(key: int) -> str | None:
    """Kafka's name of the request; None for what is no Kafka request."""
    return None if key < 0 else _API_NAMES.get(key, f"Api{key}")


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
        reader = Reader(decode_request_header(payload).body)
        if version >= 9:
            reader.compact_nullable_string()  # transactional id
        elif version >= 3:
            reader.nullable_string()
        return reader.int16() != 0
    except ValueError:
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
