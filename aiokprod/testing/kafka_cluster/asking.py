"""`Asking`: how `Admin` gets an answer: which broker, over which connection, how often.

Invariants: a connection that failed is closed and not used again; nothing is asked of a broker that is not running;
every wait has a deadline and names what it waited for.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, Self

from aiokprod.testing.kafka_cluster.blocking import AnyAnswer, BlockingConnection, Request
from aiokprod.testing.kafka_cluster.errors import KafkaAdminError, KafkaClusterError
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse

Address = tuple[str, int]
POLL_S: Final = 0.05
REQUEST_TIMEOUT_S: Final = 10.0
# What a cluster in motion says; asking again is the answer.
_PASSING: Final = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_CONTROLLER,
    }
)


class Asking:
    """Requests to any broker that can answer them."""

    def __init__(self, addresses: Callable[[], Mapping[int, Address]], timeout_s: float = 60.0) -> None:
        """Ask the brokers of `addresses`, which returns the running ones by node id and is called before every request."""
        self._addresses = addresses
        self._timeout_s = timeout_s
        self._connections: dict[int, BlockingConnection] = {}

    @classmethod
    def from_bootstrap(cls, bootstrap_servers: str, timeout_s: float = 60.0) -> Self:
        """Make one for a plaintext cluster started elsewhere; its brokers are found through metadata."""
        found: dict[int, Address] = {}

        def addresses() -> Mapping[int, Address]:
            if not found:
                found.update(_discover(bootstrap_servers))
            return found

        return cls(addresses, timeout_s)

    def close(self) -> None:
        """Close every connection. It can go on to be used and then opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _until(self, what: str, attempt: Callable[[int], bool]) -> None:
        """Repeat the attempt until it returns True; a lost connection counts as False."""
        deadline = time.monotonic() + self._timeout_s
        tries = 0
        cause: OSError | None = None
        while True:
            try:
                if attempt(tries):
                    return
            except OSError as error:
                cause = error
            tries += 1
            if time.monotonic() >= deadline:
                raise KafkaClusterError(f"after {self._timeout_s:.0f} s and {tries} tries: not yet: {what}") from cause
            time.sleep(POLL_S)

    def _controller(self, request: Request, answer: type[AnyAnswer]) -> AnyAnswer:
        """Ask the controller. KRaft brokers name any of themselves, and pass on what is not theirs."""
        controller = self._anywhere(MetadataRequest(topics=[]), MetadataResponse).controller_id
        if controller in self._addresses():
            return self._request(request, answer, controller)
        return self._anywhere(request, answer)

    def _anywhere(self, request: Request, answer: type[AnyAnswer]) -> AnyAnswer:
        """Ask any broker that runs, the next one if it does not answer."""
        cause: OSError = ConnectionError("no broker is running")
        for node_id in self._addresses():
            try:
                return self._request(request, answer, node_id)
            except OSError as error:
                cause = error
        raise cause

    def _request(self, request: Request, answer: type[AnyAnswer], node_id: int) -> AnyAnswer:
        """Ask this broker. A connection kept from before may have died with the broker: then once over a new one."""
        kept = self._connections.pop(node_id, None)
        if kept is not None:
            try:
                return self._over(kept, request, answer, node_id)
            except (ConnectionError, BrokenPipeError):
                pass  # a fresh one will tell
        addresses = self._addresses()
        if node_id not in addresses:
            raise ConnectionError(f"broker {node_id} is not running")
        host, port = addresses[node_id]
        return self._over(BlockingConnection(host, port, REQUEST_TIMEOUT_S), request, answer, node_id)

    def _over(
        self, connection: BlockingConnection, request: Request, answer: type[AnyAnswer], node_id: int
    ) -> AnyAnswer:
        try:
            received = connection.request(request, answer)
        except BaseException:
            connection.close()
            raise
        self._connections[node_id] = connection
        return received


def done(request: str, code: int, message: str | None) -> bool:
    """Return True if it worked, False to ask again. Raises KafkaAdminError if asking again cannot help."""
    if code == 0:
        return True
    if code in _PASSING:
        return False
    raise KafkaAdminError(request, code, message)


def _discover(bootstrap_servers: str) -> dict[int, Address]:
    cause: OSError | None = None
    for server in bootstrap_servers.split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            connection = BlockingConnection(host.strip("[]"), int(port), REQUEST_TIMEOUT_S)
        except OSError as error:
            cause = error
            continue
        try:
            answer = connection.request(MetadataRequest(topics=[]), MetadataResponse)
        finally:
            connection.close()
        return {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
    raise KafkaClusterError(f"no broker of {bootstrap_servers} answers") from cause
