"""`CoordinatorDirectory`: which broker coordinates which transactional id or group. One per cluster; pure.

As in Kafka a key belongs to one of 50 partitions of an internal topic, by Java's hash of the text, and the leader of
that partition is the coordinator. The mock has no such topics: a partition is led by its node, and by the next live one
when that is down, until it is moved again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError
from aiokprod.wire.codes import ErrorCode

PARTITIONS: Final = 50
"""transaction.state.log.num.partitions and offsets.topic.num.partitions."""


class CoordinatorDirectory:
    """The coordinators of one kind of key.

    Args:
        nodes: (node id, whether it is up), by id.
    """

    def __init__(self, nodes: Callable[[], list[tuple[int, bool]]]) -> None:
        self._nodes = nodes
        self._led_by: dict[int, int] = {}
        self._loading: set[int] = set()

    def __repr__(self) -> str:
        return f"<CoordinatorDirectory moved={self._led_by} loading={sorted(self._loading)}>"

    def node_of(self, key: str) -> int:
        """Return the coordinator of this key. Raises RefusalError 15 if no node is up."""
        index = partition_of(key)
        nodes = self._nodes()
        live = [node for node, is_up in nodes if is_up]
        if not live:
            raise RefusalError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        leader = self._led_by.get(index, nodes[index % len(nodes)][0])
        if leader not in live:
            leader = self._led_by[index] = next((node for node in live if node > leader), live[0])
        return leader

    def is_led_by(self, key: str, node: int) -> bool:
        """Return whether this node is the coordinator of the key, if there is one."""
        return any(is_up for _, is_up in self._nodes()) and self.node_of(key) == node

    def check(self, key: str, node: int) -> None:
        """Raise RefusalError 16, 14 or 15 unless this node may answer for the key now."""
        if self.node_of(key) != node:
            raise RefusalError(ErrorCode.NOT_COORDINATOR)
        if partition_of(key) in self._loading:
            raise RefusalError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    def move(self, key: str, node: int) -> None:
        """Let `node` coordinate this key, and the others of its partition. Raises ValueError for no node."""
        if node not in [known for known, _ in self._nodes()]:
            raise ValueError(f"no broker {node}")
        self._led_by[partition_of(key)] = node

    def set_loading(self, key: str, is_loading: bool) -> None:
        """Set whether the coordinator of this key is still reading its log."""
        if is_loading:
            self._loading.add(partition_of(key))
        else:
            self._loading.discard(partition_of(key))


def partition_of(key: str) -> int:
    """Return the partition of the internal topic: Java's `String.hashCode`, absolute, modulo partitions."""
    code = 0
    data = key.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        code = (31 * code + int.from_bytes(data[at : at + 2], "big")) & 0xFFFFFFFF
    signed = code - 2**32 if code >= 2**31 else code
    return (0 if signed == -(2**31) else abs(signed)) % PARTITIONS
