"""Who the active controller is: the leader of the KRaft quorum, asked of the controllers themselves. Stateless.

Metadata does not tell: KRaft brokers name any broker there, as any passes on what is the controller's.
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
    """The node id of the active controller; `controllers` gives the controller listeners that run now.

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
    """-1: it knows none, or does not answer."""
    try:
        connection = BlockingConnection(host, port, timeout_s)
        try:
            request = DescribeClusterRequest(endpoint_type=CONTROLLERS)
            return connection.request(request, DescribeClusterResponse).controller_id
        finally:
            connection.close()
    except OSError:
        return -1
