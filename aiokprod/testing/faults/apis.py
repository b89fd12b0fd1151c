"""Kafka's APIs, as the test's author names them: `"Produce"`, `"produce"`, `"init_producer_id"` or the key. Pure.

One table for code that reads frames without being a broker: name, key, and the first version with tagged headers.
"""

from __future__ import annotations

from typing import Final

PRODUCE: Final = 0
NEVER: Final = 32767
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
    27: ("WriteTxnMarkers", 1),
    28: ("TxnOffsetCommit", 3),
    32: ("DescribeConfigs", 4),
    36: ("SaslAuthenticate", 2),
    37: ("CreatePartitions", 2),
    42: ("DeleteGroups", 2),
    43: ("ElectLeaders", 2),
    44: ("IncrementalAlterConfigs", 1),
    45: ("AlterPartitionReassignments", 0),
    47: ("OffsetDelete", NEVER),
    49: ("AlterClientQuotas", 1),
    60: ("DescribeCluster", 0),
    61: ("DescribeProducers", 0),
    65: ("DescribeTransactions", 0),
    66: ("ListTransactions", 0),
    68: ("ConsumerGroupHeartbeat", 0),
    69: ("ConsumerGroupDescribe", 0),
    71: ("GetTelemetrySubscriptions", 0),
    72: ("PushTelemetry", 0),
    75: ("DescribeTopicPartitions", 0),
}

FLEXIBLE_FROM: Final = {key: flexible_from for key, (_, flexible_from) in _APIS.items()}
_KEYS: Final = {name.lower(): key for key, (name, _) in _APIS.items()}


def api_key_of(api: int | str) -> int:
    """Return the key of an API. Raises ValueError with the known names."""
    if isinstance(api, int):
        return api
    key = _KEYS.get(api.replace("_", "").lower())
    if key is None:
        raise ValueError(f"unknown API {api!r}; known are {', '.join(name for name, _ in _APIS.values())}")
    return key


def api_name_of(key: int) -> str:
    """Return Kafka's name of an API, `Api<key>` for an unknown one."""
    return _APIS[key][0] if key in _APIS else f"Api{key}"
