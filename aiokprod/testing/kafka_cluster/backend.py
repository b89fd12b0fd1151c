"""`Broker` and `Backend`: the control of real brokers, independent of how they run (JVM processes, containers).

One `Broker` per node, made with the cluster and kept over its lives: kill it, start it again, it is the same object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Protocol

from aiokprod.testing.kafka_cluster.errors import KafkaClusterError
from aiokprod.testing.kafka_cluster.spec import ClusterSpec, NodeSpec


class BrokerState(Enum):
    """The state of a broker's process."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


class Broker(ABC):
    """A handle on one broker. Safe to use from any one thread at a time."""

    def __init__(self, node: NodeSpec, listener: str, wait_registered: Callable[[int], None]) -> None:
        self.node_id = node.node_id
        self.host = node.host
        self.port = node.advertised[listener]  # where clients reach it (through the proxy, where there is one)
        self.node = node
        self._wait_registered = wait_registered

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.node_id} {self.host}:{self.port} {self.state.value}>"

    @property
    @abstractmethod
    def state(self) -> BrokerState:
        """Asked of the process or container itself: a broker that died by itself is STOPPED."""

    @property
    def is_running(self) -> bool:
        """Return whether the broker runs: it is neither stopped nor paused."""
        return self.state is BrokerState.RUNNING

    def start(self, *, wait: bool = True) -> None:
        """Start it again on its data; nothing happens if it runs.

        Args:
            wait: until it is registered with the cluster and answers. Without a majority of the nodes it cannot be:
                start the others with `wait=False` first.

        Raises:
            KafkaClusterError: it ended at once, or did not register in time; the message has what its log complains of.
        """
        if self.state is BrokerState.PAUSED:
            raise KafkaClusterError(f"broker {self.node_id} is paused: resume() it")
        if self.state is BrokerState.STOPPED:
            self._launch()
        if wait:
            self._wait_registered(self.node_id)

    def restart(self, *, wait: bool = True) -> None:
        """Stop the broker in order, then start it."""
        self.stop()
        self.start(wait=wait)

    @abstractmethod
    def kill(self) -> None:
        """Send SIGKILL, as if the power failed. Returns when the process has ended."""

    @abstractmethod
    def stop(self, timeout_s: float = 60.0) -> None:
        """Send SIGTERM: the broker moves its leaders and ends; after the timeout it is killed."""

    @abstractmethod
    def pause(self) -> None:
        """Send SIGSTOP: sockets stay open, nothing is answered. Raises KafkaClusterError if the broker is stopped."""

    @abstractmethod
    def resume(self) -> None:
        """Send SIGCONT after `pause`; has no effect on a running broker. Raises KafkaClusterError if it is stopped."""

    @abstractmethod
    def log_tail(self, lines: int = 40) -> str:
        """Return the end of the broker's log."""

    def complaints(self, lines: int = 40) -> str:
        """Return the last warnings, errors and stack traces of the log: why the broker ended, without its shutdown."""
        kept = [line for line in self.log_tail(5000).splitlines() if "] INFO " not in line]
        return "\n".join(kept[-lines:])

    @abstractmethod
    def _launch(self) -> None: ...


class Backend(Protocol):
    """The runner of the nodes of one cluster."""

    @property
    def admin_listener(self) -> str:
        """The plaintext listener for our admin requests; its bound port is reachable from this machine."""
        ...

    @property
    def brokers(self) -> dict[int, Broker]:
        """By node id; filled by `start`."""
        ...

    def start(self, spec: ClusterSpec, wait_registered: Callable[[int], None]) -> None:
        """Prepare the storage and launch every node; does not wait for them to answer."""
        ...

    def stop(self) -> None:
        """End every node by force and remove its data. May be called twice, or after a failed start."""
        ...
