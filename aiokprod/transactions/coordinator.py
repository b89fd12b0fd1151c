"""`Coordinators`: the brokers that answer for transactional ids and groups: found, kept, asked, and dropped when they are gone.

One per start of a transactional producer. Each call sends its request once: the state machine of the transaction decides
what is asked again, and when (`RetryPace`).

    ask -> FindCoordinator, unless it is known -> the request, to that broker -> its answer, or `NoAnswer`
                                                      |
        forgotten: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR in the answer; no answer

Invariant: a coordinator is kept only while it answers as one. FindCoordinator goes on naming a dead broker, with code 0,
until the controller has missed it (broker: 10.11): so the look-up is repeated at the pace of the retries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from random import Random
from typing import Any, Final, TypeAlias

from aiokprod.backoff import SHORTEST_BACKOFF_S, Backoff
from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.connection.answer_limits import answer_bytes
from aiokprod.cluster.connection.connection import BrokerConnection
from aiokprod.cluster.connection.control_request import RequestMessage
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, BrokerAnswerError, RequestTimeoutError, UnsupportedVersionError
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsResponse
from aiokprod.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiokprod.wire.messages.offset_commit import OffsetCommitResponse
from aiokprod.wire.messages.offset_fetch import OffsetFetchResponse
from aiokprod.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

GONE: Final = frozenset(
    {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
)
"""Codes after which the coordinator is looked up again (`# faults: X2`)."""

LATER: Final = GONE | {
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
}
"""Codes of FindCoordinator after which asking again may help."""

FIND_BY_KIND: Final = 1
FIND_BY_KEY: Final = 3
"""The versions of FindCoordinator that ask for one key of a kind."""

FIND_BY_KEYS: Final = 4
"""The version of FindCoordinator from which on one request asks for many keys (Kafka 3.0)."""

FIRST_VERSION: Final[dict[type, int]] = {
    InitProducerIdRequest: 5,  # version 6 speaks of two-phase commit, which brokers do not offer (broker: 11.8)
    AddPartitionsToTxnRequest: 3,  # from 4 on it is a request of brokers (KIP-890)
    AddOffsetsToTxnRequest: 4,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
}
"""The highest version of each request in the first version of the protocol. Above them one request wedges the id of a
cluster with transaction.version 0 (broker: 10.1, 10.3a)."""

SECOND_VERSION: Final[dict[type, int]] = FIRST_VERSION | {TxnOffsetCommitRequest: 5, EndTxnRequest: 5}
"""The same in the second version of the protocol (KIP-890), which bumps the epoch at each end."""

CONCURRENT_PAUSE_S: Final = 0.0008
CONCURRENT_FACTOR: Final = 1.5
"""The first pause after CONCURRENT_TRANSACTIONS, and its growth: the markers of the transaction before take 2 to 56 ms (broker:
10.6), on a quiet broker often less, and a transaction that follows at once waits for them. The first pause and its jitter stay
below 1 ms, as event loops wait for whole milliseconds."""

AT_ONCE: Final = 2
"""So many questions after CONCURRENT_TRANSACTIONS are asked without a pause: an answer and the next question take as long as
the markers often do, and the shortest pause of an event loop is longer."""

LONGEST_ATTEMPT_S: Final = 30.0
"""A coordinator that stands still is replaced within seconds, and the next attempt finds its successor. Behind a longer attempt
the time of the call (`max_block_ms`) or of the transaction would be over; both are 60 s by default."""

Key: TypeAlias = "tuple[CoordinatorKind, str]"


class CoordinatorKind(IntEnum):
    """The two kinds of names that have a coordinator; the key type of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


class RetryPace:
    """The pauses between the attempts at one request: `retry_backoff_ms` to `retry_backoff_max_ms`, with jitter."""

    def __init__(self, config: ProducerConfig, random: Random) -> None:
        least_s = max(config.retry_backoff_ms / 1000, SHORTEST_BACKOFF_S)
        most_s = max(config.retry_backoff_max_ms / 1000, SHORTEST_BACKOFF_S)
        self._usual = Backoff(least_s, most_s)
        self._concurrent = Backoff(min(CONCURRENT_PAUSE_S, most_s), most_s, CONCURRENT_FACTOR)
        self._random = random

    def usual_s(self, attempt: int) -> float:
        """Return the seconds to wait after failed attempt number `attempt` (1 is the first)."""
        return self._usual.delay_s(attempt, self._random.random())

    def concurrent_s(self, attempt: int) -> float:
        """Return the same where CONCURRENT_TRANSACTIONS was the answer: 0 at first."""
        if attempt <= AT_ONCE:
            return 0.0
        return self._concurrent.delay_s(attempt - AT_ONCE, self._random.random())


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """The outcome of a request that was not answered."""

    error: AiokprodError
    is_written: bool
    """False: no byte of the request left, so no broker acts on it."""
    code: int | None = None
    """Why asking again is no use: the code that refused the look-up for good, or UNSUPPORTED_VERSION; None: it may help."""


class Coordinators:
    """The coordinators that one producer talks to.

    Args:
        client: has the connections.
        request_timeout_s: bound of one attempt, with its look-up and its dial; `LONGEST_ATTEMPT_S` if that is less.
    """

    def __init__(self, client: ClusterClient, request_timeout_s: float) -> None:
        self._client = client
        self._request_timeout_s = min(request_timeout_s, LONGEST_ATTEMPT_S)
        self._nodes: dict[Key, int] = {}
        self._turn = 0  # which broker was asked for topics last

    def known(self, kind: CoordinatorKind, key: str) -> int | None:
        """Return the node id of the coordinator that is kept; None: it has to be found."""
        return self._nodes.get((kind, key))

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        """Look the coordinator up again before the next request."""
        self._nodes.pop((kind, key), None)

    async def find(self, kind: CoordinatorKind, keys: Collection[str]) -> None:
        """Look many coordinators up by one request, where the broker can. Whatever fails is left to `ask`."""
        unknown = list(dict.fromkeys(key for key in keys if (kind, key) not in self._nodes))
        if len(unknown) < 2:
            return
        with suppress(AiokprodError, TimeoutError):
            async with asyncio.timeout(self._request_timeout_s):
                connection = await self._client.control_connection(None)
                request = FindCoordinatorRequest(key_type=int(kind), coordinator_keys=unknown)
                version = connection.versions.pick(request.API_KEY, FIND_BY_KEYS, request.MAX_VERSION)
                answer: FindCoordinatorResponse = await connection.request(
                    request, timeout_s=self._request_timeout_s, version=version
                )
                asked = set(unknown)
                for found in answer.coordinators:
                    if not found.error_code and found.key in asked:
                        self._nodes[kind, found.key] = found.node_id

    async def ask(self, kind: CoordinatorKind, key: str, message: RequestMessage, highest: int) -> Any:
        """Send one request to a coordinator, once.

        Args:
            kind: of the coordinator.
            key: the transactional id, or the id of the group.
            message: an `XRequest`.
            highest: the highest version to send.

        Returns:
            The decoded answer, whatever its codes are, or `NoAnswer`.

        Cancellation: the answer is dropped; the coordinator may have acted on the request.
        """
        is_written = False
        scope = asyncio.timeout(self._request_timeout_s)
        try:
            async with scope:
                connection = await self._connection(kind, key)
                version = connection.versions.pick(message.API_KEY, message.MIN_VERSION, highest)
                message.encode(version)  # raises for what the version cannot carry, while nothing is written
                is_written = True
                answer = await connection.request(message, timeout_s=self._request_timeout_s, version=version)
        except UnsupportedVersionError as error:
            return NoAnswer(error, is_written=False, code=int(ErrorCode.UNSUPPORTED_VERSION))
        except BrokerAnswerError as error:  # of the look-up
            return NoAnswer(error, is_written=False, code=None if error.code in LATER else error.code)
        except AiokprodError as error:
            return self._lost(kind, key, error, is_written)
        except TimeoutError:
            if not scope.expired():
                raise
            return self._lost(kind, key, self._timed_out(key), is_written)
        return self._taken(kind, key, answer)

    def ask_now(
        self,
        kind: CoordinatorKind,
        key: str,
        message: RequestMessage,
        highest: int,
        told: Callable[[Callable[[], Any]], None],
    ) -> bool:
        """Send one request as `ask` does, within this call, if its coordinator is known and connected.

        The usual case of a transaction: a task and its timeout would cost more than the request.

        Args:
            kind, key, message, highest: as for `ask`.
            told: called once, from the event loop, with a function that returns what `ask` returns. It must not raise.

        Returns:
            False: nothing was sent, and `told` will not be called; `ask` finds out why.
        """
        node_id = self._nodes.get((kind, key))
        connection = None if node_id is None else self._client.open_control_connection(node_id)
        if connection is None:
            return False
        timeout_s = self._request_timeout_s
        try:
            version = connection.versions.pick(message.API_KEY, message.MIN_VERSION, highest)
            body = message.encode(version)
            answer = connection.call_now(
                type(message), version, body, timeout_s=timeout_s, max_answer_bytes=answer_bytes(message)
            )
        except AiokprodError:
            return False
        timer = answer.get_loop().call_later(timeout_s, answer.cancel)

        def answered(answer: asyncio.Future[memoryview]) -> None:
            timer.cancel()
            if not answer.cancelled():
                answer.exception()  # retrieved: perhaps it is not asked for
            told(partial(self._outcome, kind, key, connection, message, version, answer))

        answer.add_done_callback(answered)
        return True

    def _outcome(
        self,
        kind: CoordinatorKind,
        key: str,
        connection: BrokerConnection,
        message: RequestMessage,
        version: int,
        answer: asyncio.Future[memoryview],
    ) -> Any:
        """Return what became of a request that was written."""
        if answer.cancelled():  # by its timer
            return self._lost(kind, key, self._timed_out(key), is_written=True)
        try:
            return self._taken(kind, key, connection.decode(message, answer.result(), version))
        except AiokprodError as error:
            return self._lost(kind, key, error, is_written=True)

    def _timed_out(self, key: str) -> RequestTimeoutError:
        return RequestTimeoutError(f"the coordinator of {key!r} did not answer within {self._request_timeout_s:g} s")

    def _taken(self, kind: CoordinatorKind, key: str, answer: Any) -> Any:
        if not GONE.isdisjoint(codes_of(answer)):
            self.forget(kind, key)
        return answer

    async def topics(self, group: str, names: Iterable[str], timeout_s: float) -> MetadataResponse:
        """Return what another broker than the coordinator of a group knows of topics; each call asks the next one.

        Args:
            group: id of the group.
            names: of the topics; none of them is created.
            timeout_s: of everything, including the dial.

        Raises:
            AiokprodError: it did not answer.

        Cancellation: the answer is dropped.
        """
        coordinator = self._nodes.get((CoordinatorKind.GROUP, group))
        brokers = sorted(self._client.snapshot.brokers)
        others = [node_id for node_id in brokers if node_id != coordinator] or brokers
        self._turn += 1
        request = MetadataRequest([MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=False)
        node_id = others[self._turn % len(others)] if others else None
        answer: MetadataResponse = await self._client.request(request, node_id=node_id, timeout_s=timeout_s)
        return answer

    def _lost(self, kind: CoordinatorKind, key: str, error: AiokprodError, is_written: bool) -> NoAnswer:
        # A lost connection, silence, or a broker that is not there any more: another one may be the coordinator by now.
        self.forget(kind, key)
        self._client.refresh(f"the coordinator of {key!r} does not answer")
        return NoAnswer(error, is_written)

    async def _connection(self, kind: CoordinatorKind, key: str) -> BrokerConnection:
        """Return a connection to the coordinator, which is looked up unless it is known.

        Raises:
            BrokerAnswerError: the look-up was refused.
        """
        node_id = self._nodes.get((kind, key))
        if node_id is None:
            connection = await self._client.control_connection(None)
            request = FindCoordinatorRequest(key=key, key_type=int(kind))
            version = connection.versions.pick(request.API_KEY, FIND_BY_KIND, FIND_BY_KEY)
            answer: FindCoordinatorResponse = await connection.request(
                request, timeout_s=self._request_timeout_s, version=version
            )
            if answer.error_code:
                text = f"the coordinator of {key!r} is not known: {name_of(answer.error_code)}"
                raise BrokerAnswerError(text, code=answer.error_code)
            node_id = self._nodes[kind, key] = answer.node_id
        return await self._client.control_connection(node_id)

    def __repr__(self) -> str:
        return f"<Coordinators {self._nodes}>"


def codes_of(answer: object) -> Iterable[int]:
    """Return the codes in the answer of a coordinator: one, or one for each partition."""
    match answer:
        case InitProducerIdResponse() | AddOffsetsToTxnResponse() | EndTxnResponse():
            return (answer.error_code,)
        case AddPartitionsToTxnResponse():
            return [
                result.partition_error_code
                for topic in answer.results_by_topic_v3_and_below
                for result in topic.results_by_partition
            ]
        case DescribeTransactionsResponse():
            return [state.error_code for state in answer.transaction_states]
        case TxnOffsetCommitResponse() | OffsetCommitResponse():
            return [partition.error_code for topic in answer.topics for partition in topic.partitions]
        case OffsetFetchResponse():
            return [
                answer.error_code,
                *(partition.error_code for topic in answer.topics for partition in topic.partitions),
            ]
        case _:
            raise TypeError(f"{type(answer).__name__} is not an answer of a coordinator")
