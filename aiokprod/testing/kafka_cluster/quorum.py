"""The active controller: the leader of the KRaft quorum, as the controllers themselves name it. Stateless.

Metadata does not say: KRaft brokers name any broker there, because each forwards requests to the controller.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from aiokprod.testing.kafka_cluster.asking import Address
from aiokprod.testing.kafka_cluster.blocking import BlockingConnection
from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

CONTROLLERS: Final = 2  # DescribeCluster's endpoint type (KIP-919)
POLL_S: Final = 0.05


def active_controller(controllers: Callable[[], Mapping[int, Address]], timeout_s: float = 30.0) -> int:
    """Return the node id of the active controller; `controllers` returns the running controller listeners.

    Raises:
        KafkaClusterError: none was elected in this time.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        for host, port in controllers().values():
            found = _as_told_by(host, port, timeout_s)
            if found in controllers():  # it may be one that has just gone
                return found
        if time.monotonic() >= deadline:
            raise KafkaClusterError(f"after {timeout_s:.0f} s there is no active controller")
        time.sleep(POLL_S)


def _as_told_by(host: str, port: int, timeout_s: float) -> int:
    """Return the controller that this node names; -1 if it knows none, or does not answer."""
    try:
        connection = BlockingConnection(host, port, timeout_s)
        try:
            request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
            return connection.request(request, DescribeClusterResponse).controller_id
        finally:
            connection.close()
    except OSError:
        return -1
