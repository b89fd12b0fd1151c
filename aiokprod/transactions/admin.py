"""`TransactionAdmin`: lists and describes the transactions of a cluster, and ends what is left open or hangs (KIP-664).

transactional_ids ──> every broker: ListTransactions
describe, abort   ──> the coordinator of the id: DescribeTransactions, EndTxn (below version 2: InitProducerId)
find_hanging      ──> the leaders: DescribeProducers; every broker: ListTransactions; coordinators; the leaders again
abort_hanging     ──> the leader: WriteTxnMarkers
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar, Unpack, cast

from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.cluster_listener import SilentListener
from aiokprod.cluster.connection.control_request import RequestMessage
from aiokprod.config import ProducerConfig, ProducerOptions
from aiokprod.config.call_timeouts import UNSET, Unset, check_timeout, timeout_of_call
from aiokprod.config.option_checks import can_be_encoded, shown
from aiokprod.errors import (
    AiokprodError,
    AuthenticationError,
    BrokerAnswerError,
    ClusterAuthorizationError,
    ClusterError,
    ConnectionLostError,
    ProtocolError,
    RequestTimeoutError,
    TlsError,
    TopicAuthorizationError,
    UnsupportedVersionError,
    UsageError,
    advise,
)
from aiokprod.metrics import Metrics
from aiokprod.model import TransactionOutcome
from aiokprod.randomness import new_random
from aiokprod.transactions.coordinator import GONE, CoordinatorKind, Coordinators, NoAnswer, RetryPace
from aiokprod.transactions.end_transaction import Ending, connection_config
from aiokprod.transactions.fencing import Fencing
from aiokprod.transactions.hanging import (
    STATES,
    HangingTransaction,
    ListedTransaction,
    OpenTransaction,
    TransactionDescription,
    hanging_of,
)
from aiokprod.transactions.machine_actions import Partition, Verdict
from aiokprod.transactions.prepared import LONGEST_NAME, PreparedTransaction
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages import describe_producers as producers
from aiokprod.wire.messages import write_txn_markers as markers
from aiokprod.wire.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from aiokprod.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

__all__ = ["HangingTransaction", "ListedTransaction", "OpenTransaction", "TransactionAdmin", "TransactionDescription"]

T = TypeVar("T")
FEATURE: Final = "transaction.version"
AT_A_TIME: Final = 1000
"""Partitions in one request."""
LONGEST_TIMEOUT_S: Final = 900.0
"""The longest time that a transaction may be open, unless a broker's transaction.max.timeout.ms is larger."""
AUTHORIZATION: Final = frozenset(
    {ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
)
ALTER: Final = "ALTER on the cluster (brokers without KIP-1037: CLUSTER_ACTION)"
_LATER: Final = GONE | {
    ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
}  # fmt: skip
"""Codes after which the same question is asked again."""


class _AgainError(Exception):
    """The answer that says: ask again. `cause` is what is raised when the time is over."""

    def __init__(self, cause: AiokprodError) -> None:
        super().__init__(cause.message)
        self.cause = cause


class TransactionAdmin:
    """The transactions of a cluster, for operators: see docs/transactions_admin.md.

        async with TransactionAdmin("localhost:9092") as admin:
            for each in await admin.transactional_ids("orders-"):
                print(each.transactional_id, each.state)

    Args:
        servers: `"host:port,host:port"`, a list of `"host:port"`, or a `ProducerConfig`, whose connection options are used.
        timeout: bound of each call, in seconds, repetitions included.
        **options: the options of `ProducerConfig`.

    Raises:
        ConfigError: an option is unknown, has a wrong type or conflicts with another; `timeout` is not a number of seconds.
    """

    def __init__(
        self,
        servers: str | Sequence[str] | ProducerConfig,
        /,
        *,
        timeout: float = 30.0,
        **options: Unpack[ProducerOptions],
    ) -> None:
        self.config = connection_config(servers, "TransactionAdmin()", timeout, **options)
        self._timeout_s = float(timeout)
        self._client = ClusterClient(self.config, Metrics(), SilentListener())
        self._coordinators = Coordinators(self._client, self.config.request_timeout_ms / 1000)
        self._pace = RetryPace(self.config, new_random())
        self._is_started = False

    # ------------------------------------------------------------------ life
    async def start(self, timeout: float | Unset | None = UNSET) -> Self:
        """Connect to the cluster.

        Args:
            timeout: seconds to wait for a connection; None waits without bound. Without it `start_timeout_ms` applies.

        Returns:
            The object itself.

        Raises:
            BootstrapError: no bootstrap server answered; the message has host, port and cause of each.
            AuthenticationError, TlsError: the broker rejected our credentials or certificate, or we rejected the broker's.
            ConfigError: `timeout` is not a number of seconds, or is negative.

        Cancellation: undoes the start.
        """
        await self._client.start(timeout_of_call("timeout of start()", timeout, self.config.start_timeout))
        self._is_started = True
        return self

    async def close(self) -> None:
        """End all connections.

        Cancellation: stops waiting for them to end.
        """
        self._is_started = False
        await self._client.close()

    async def __aenter__(self) -> Self:
        return await self.start(self._timeout_s)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ------------------------------------------------------------------ questions
    async def transactional_ids(self, prefix: str = "", *, states: Iterable[str] = ()) -> list[ListedTransaction]:
        """List the transactional ids that the coordinators know, from every broker.

        Args:
            prefix: only ids that begin with it.
            states: only ids in these states: "Ongoing" has an open transaction; "Empty", "PrepareCommit", "PrepareAbort",
                "CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead". None given: all.

        Returns:
            The ids, sorted; those that the principal may describe.

        Raises:
            UsageError: an argument is wrong, or this object is not started.
            ClusterError: a broker did not tell its part in time, or the principal may not ask. Brokers before 3.0 cannot tell
                (`UnsupportedVersionError`).
            ProtocolError: until the time was over a broker gave answers that cannot be read.

        Cancellation: stops asking.
        """
        if not isinstance(cast("object", prefix), str):
            raise UsageError(f"prefix is {shown(prefix)}: it must be a str")
        wanted = _listed("states", states)
        unknown = [each for each in wanted if each not in STATES]
        if unknown:
            raise UsageError(f"no transaction has the state {shown(unknown[0])}: they are {', '.join(STATES)}")
        listed = await self._list(ListTransactionsRequest(state_filters=wanted))
        return sorted(
            (each for each in listed if each.transactional_id.startswith(prefix)),
            key=lambda each: each.transactional_id,
        )

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Return what the coordinator of an id knows of it and of its transaction.

        Args:
            transactional_id: of the producer.

        Raises:
            UsageError: `transactional_id` is no text, or empty, or this object is not started.
            BrokerAnswerError: the coordinator refuses; `code` 105 (TRANSACTIONAL_ID_NOT_FOUND): it does not know the id.
            ClusterError: the coordinator did not answer in time, or the principal may not ask.
            ProtocolError: until the time was over it gave answers that cannot be read.

        Cancellation: stops asking.
        """
        _check_name("transactional_id", transactional_id)
        return await self._until_told(lambda: self._describe(transactional_id))

    async def find_hanging(
        self, topics: Iterable[str] | None = None, *, older_than: float = LONGEST_TIMEOUT_S
    ) -> list[HangingTransaction]:
        """Find transactions that are open in a log and that no coordinator will end. Source: KIP-664.

        The principal needs DESCRIBE on every transactional id: one that is hidden from it looks as if it did not exist, and
        its transaction as if it hung.

        Args:
            topics: names of topics to look into; None: all of the cluster.
            older_than: only those whose producer wrote nothing for so many seconds.

        Returns:
            What hangs, sorted by topic, partition and offset.

        Raises:
            UsageError: an argument is wrong, or this object is not started.
            TopicAuthorizationError: the principal may not read a topic.
            ClusterError: a broker did not answer in time, or the principal may not ask. Leave topics with partitions that have
                no leader out.
            ProtocolError: until the time was over a broker gave answers that cannot be read.

        Cancellation: stops asking.
        """
        names = None if topics is None else _checked_topics(topics)
        check_timeout("older_than of find_hanging()", older_than)
        before_ms = now_ms() - older_than * 1000
        everything = await self._open_transactions(names)
        candidates = [each for each in everything if each.last_ms <= before_ms]
        if not candidates:
            return []
        listed = await self._list(
            ListTransactionsRequest(producer_id_filters=sorted({each.producer_id for each in candidates}))
        )
        ids = {each.producer_id: each.transactional_id for each in listed}
        descriptions: dict[str, TransactionDescription] = {}
        for name in sorted(set(ids.values())):
            try:
                descriptions[name] = await self.describe(name)
            except BrokerAnswerError as error:
                if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    raise
        still_open = await self._open_transactions(sorted({each.topic for each in candidates}))
        return hanging_of(candidates, ids, descriptions, still_open)

    # ------------------------------------------------------------------ ends
    async def abort(self, transactional_id: str) -> TransactionOutcome:
        """Abort the open transaction of an id. Its producer learns of it by its next request.

        The transaction that is open at the call is aborted, and no later one, and its producer goes on with the next one. Below
        `transaction.version` 2 its producer is fenced as well: in the same epoch it would go on with the rest of the
        transaction as another one. Also one that was prepared: make sure that no process is about to commit it.

        Args:
            transactional_id: of the producer.

        Returns:
            ABORTED; or COMMITTED, if its producer committed it meanwhile.

        Raises:
            UsageError: no transaction of the id is open; nothing was changed. Or as for `describe`.
            BrokerAnswerError, ClusterError, ProtocolError: as for `describe`; nothing was changed.
            TransactionOutcomeUnknownError: the coordinator did not answer in time, or the principal may not write with the id.
                Below `transaction.version` 2 also if the transaction has ended meanwhile.

        Cancellation: stops asking; the coordinator may have aborted it.
        """
        found = await self.describe(transactional_id)
        if not found.is_open:
            raise UsageError(f"no transaction of {transactional_id!r} is open: its state is {found.state}")
        deadline = asyncio.get_running_loop().time() + self._timeout_s
        if self._client.finalized_features.get(FEATURE, 0) < 2:
            look = partial(self._until_told, partial(self._describe, transactional_id))
            return await Fencing(self._client, self.config, found, look, deadline).outcome()
        left_open = PreparedTransaction(transactional_id, found.producer_id, found.epoch, 2)
        return await Ending(self._client, self.config, left_open, Verdict.ABORT, deadline).outcome()

    async def abort_hanging(self, hanging: HangingTransaction) -> None:
        """End a hanging transaction by an ABORT marker in its partition: readers of committed records go on there.

        It looks first whether that very transaction is still open. Needs ALTER on the cluster, on brokers without KIP-1037
        CLUSTER_ACTION.

        Args:
            hanging: as `find_hanging` has found it.

        Raises:
            UsageError: it is not open any more; nothing was written. Or `hanging` is something else.
            BrokerAnswerError, ClusterError, ProtocolError: the leader refuses, or did not answer in time: look again whether it
                still hangs.

        Cancellation: stops asking; the marker may have been written.
        """
        if not isinstance(cast("object", hanging), HangingTransaction):
            raise UsageError(f"{shown(hanging)} is no HangingTransaction: find_hanging() gives them")
        await self._until_told(lambda: self._write_marker(hanging))

    # ------------------------------------------------------------------ requests
    async def _until_told(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer, or the time of the call is over."""
        if not self._is_started:
            raise UsageError("not started, or closed: use `async with TransactionAdmin(...)`, or await start() first")
        last: AiokprodError | None = None
        scope = asyncio.timeout(self._timeout_s)
        try:
            async with scope:
                attempt = 0
                while True:
                    attempt += 1
                    try:
                        return await ask()
                    except _AgainError as again:
                        last = again.cause
                    except UnsupportedVersionError as error:
                        advise(error, "Kafka 3.0 or later is needed.")
                        raise
                    self._client.refresh("the transactions of the cluster are looked at")
                    await asyncio.sleep(self._pace.usual_s(attempt))
        except TimeoutError:
            if not scope.expired():
                raise
        if last is None:
            last = RequestTimeoutError(f"no answer within {self._timeout_s:g} s")
        raise last

    async def _send(self, message: RequestMessage, node_id: int | None) -> Any:
        try:
            return await self._client.request(
                message, node_id=node_id, timeout_s=min(self._timeout_s, self.config.request_timeout_ms / 1000)
            )
        except (AuthenticationError, TlsError, UnsupportedVersionError):
            raise
        except (ClusterError, ProtocolError) as error:  # of the second kind the next connection may know nothing
            raise _AgainError(error) from None

    async def _list(self, request: ListTransactionsRequest) -> list[ListedTransaction]:
        """Ask every broker for the ids that it coordinates."""

        async def ask() -> list[ListedTransaction]:
            cluster: MetadataResponse = await self._send(MetadataRequest(topics=[]), None)
            found: dict[str, ListedTransaction] = {}
            for broker in cluster.brokers:
                answer: ListTransactionsResponse = await self._send(request, broker.node_id)
                if answer.error_code:
                    text = f"broker {broker.node_id} does not list its transactional ids"
                    raise _error_of(answer.error_code, text, "DESCRIBE on the transactional ids")
                for each in answer.transaction_states:
                    found[each.transactional_id] = ListedTransaction(
                        each.transactional_id, each.producer_id, each.transaction_state, broker.node_id
                    )
            return list(found.values())

        return await self._until_told(ask)

    async def _describe(self, transactional_id: str) -> TransactionDescription:
        answer: DescribeTransactionsResponse | NoAnswer = await self._coordinators.ask(
            CoordinatorKind.TRANSACTION,
            transactional_id,
            DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            DescribeTransactionsRequest.MAX_VERSION,
        )
        text = f"the coordinator of {transactional_id!r} does not describe it"
        right = f"DESCRIBE on the transactional id {transactional_id!r}"
        if isinstance(answer, NoAnswer):
            if answer.code is None:
                raise _AgainError(answer.error)
            raise _error_of(answer.code, text, right) if answer.code in AUTHORIZATION else answer.error
        found = [each for each in answer.transaction_states if each.transactional_id == transactional_id]
        if not found:
            raise _AgainError(BrokerAnswerError(f"the coordinator's answer leaves {transactional_id!r} out"))
        if found[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            unknown = BrokerAnswerError(
                f"no coordinator knows the transactional id {transactional_id!r}: TRANSACTIONAL_ID_NOT_FOUND",
                code=found[0].error_code,
            )
            advise(
                unknown,
                "List the ids. A transaction that hangs belongs to no id that is known: find_hanging() finds it.",
            )
            raise unknown
        if found[0].error_code:
            raise _error_of(found[0].error_code, text, right)
        return TransactionDescription(
            transactional_id,
            found[0].transaction_state,
            found[0].producer_id,
            found[0].producer_epoch,
            found[0].transaction_timeout_ms,
            None if found[0].transaction_start_time_ms < 0 else found[0].transaction_start_time_ms,
            tuple((each.topic, number) for each in found[0].topics for number in each.partitions),
        )

    async def _leaders(self, topics: Sequence[str] | None) -> dict[int, list[Partition]]:
        """Return the partitions by the node ids of their leaders."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        answer: MetadataResponse = await self._send(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False), None
        )
        leaders: dict[int, list[Partition]] = {}
        for topic in answer.topics:
            name = topic.name or ""
            if topic.error_code:
                text = f"topic {name!r} is not described"
                raise _error_of(topic.error_code, text, f"READ on topic {name!r}", topic=name)
            for each in topic.partitions:
                if each.leader_id < 0:
                    text = f"{name}-{each.partition_index} has no leader that could be asked"
                    raise _AgainError(ConnectionLostError(text, topic=name, partition=each.partition_index))
                leaders.setdefault(each.leader_id, []).append((name, each.partition_index))
        return leaders

    async def _open_transactions(self, topics: Sequence[str] | None) -> list[OpenTransaction]:
        """Ask the leaders which transactions are open in the logs of these topics."""

        async def ask() -> list[OpenTransaction]:
            found: list[OpenTransaction] = []
            for node_id, partitions in (await self._leaders(topics)).items():
                for at in range(0, len(partitions), AT_A_TIME):
                    found += await self._ask_leader(node_id, partitions[at : at + AT_A_TIME])
            return sorted(found, key=lambda each: (each.topic, each.partition, each.start_offset))

        return await self._until_told(ask)

    async def _ask_leader(self, node_id: int, partitions: Sequence[Partition]) -> list[OpenTransaction]:
        by_topic: dict[str, list[int]] = {}
        for name, number in partitions:
            by_topic.setdefault(name, []).append(number)
        request = producers.DescribeProducersRequest(
            topics=[producers.TopicRequest(name, numbers) for name, numbers in by_topic.items()]
        )
        answer: producers.DescribeProducersResponse = await self._send(request, node_id)
        found: list[OpenTransaction] = []
        answered: set[Partition] = set()
        for topic in answer.topics:
            for each in topic.partitions:
                name, number = topic.name, each.partition_index
                answered.add((name, number))
                if each.error_code:
                    text = f"the producers of {name}-{number} are not described"
                    raise _error_of(each.error_code, text, f"READ on topic {name!r}", topic=name, partition=number)
                found += [
                    OpenTransaction(
                        name,
                        number,
                        state.producer_id,
                        state.producer_epoch,
                        state.coordinator_epoch,
                        state.current_txn_start_offset,
                        state.last_timestamp,
                    )
                    for state in each.active_producers
                    if state.current_txn_start_offset >= 0
                ]
        missing = set(partitions) - answered
        if missing:
            lacking, number = min(missing)
            text = f"broker {node_id} leaves {lacking}-{number} out"
            raise _AgainError(BrokerAnswerError(text, topic=lacking, partition=number))
        return found

    async def _write_marker(self, hanging: HangingTransaction) -> None:
        wanted = hanging.open
        where: Partition = (wanted.topic, wanted.partition)
        leaders = {
            partition: node for node, each in (await self._leaders([wanted.topic])).items() for partition in each
        }
        if where not in leaders:
            raise UsageError(f"{wanted.topic}-{wanted.partition} does not exist", topic=where[0], partition=where[1])
        node_id = leaders[where]
        found = [
            each
            for each in await self._ask_leader(node_id, [where])
            if (each.producer_id, each.start_offset) == (wanted.producer_id, wanted.start_offset)
        ]
        if not found:
            raise UsageError(f"the transaction of {hanging} is not open any more", topic=where[0], partition=where[1])
        marker = markers.WritableTxnMarker(
            producer_id=found[0].producer_id,
            producer_epoch=found[0].epoch,
            transaction_result=False,
            topics=[markers.WritableTxnMarkerTopic(wanted.topic, [wanted.partition])],
            coordinator_epoch=max(0, found[0].coordinator_epoch),
        )
        answer: markers.WriteTxnMarkersResponse = await self._send(
            markers.WriteTxnMarkersRequest(markers=[marker]), node_id
        )
        codes = [
            each.error_code
            for result in answer.markers
            for topic in result.topics
            for each in topic.partitions
            if (topic.name, each.partition_index) == where
        ]
        if not codes:
            raise _AgainError(BrokerAnswerError(f"the leader of {where[0]}-{where[1]} did not answer for it"))
        if codes[0]:
            text = f"the marker of {hanging} was refused"
            raise _error_of(codes[0], text, ALTER, topic=where[0], partition=where[1])

    def __repr__(self) -> str:
        return f"<TransactionAdmin {'started' if self._is_started else 'not started'}>"


def now_ms() -> float:
    """Return the time that timestamps of records are compared with: milliseconds since 1970."""
    return time.time() * 1000


def _error_of(code: int, text: str, right: str, *, topic: str | None = None, partition: int | None = None) -> Exception:
    """Return the error of a code; one that says "ask again" if that may help.

    Args:
        code: of the answer.
        text: what is not done.
        right: that was needed, and on what.
        topic: that was asked about.
        partition: that was asked about.
    """
    text = f"{text}: {name_of(code)}"
    if code in AUTHORIZATION or code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        refused = (
            ClusterAuthorizationError(text, code=code)
            if code in AUTHORIZATION
            else TopicAuthorizationError(text, topic=topic, partition=partition, code=code)
        )
        advise(refused, f"Grant this principal {right}.")
        return refused
    error: ClusterError = BrokerAnswerError(text, topic=topic, partition=partition, code=code)
    return _AgainError(error) if code in _LATER else error


def _check_name(name: str, text: object) -> None:
    if not isinstance(text, str) or not text or not can_be_encoded(text) or len(text.encode()) > LONGEST_NAME:
        raise UsageError(f"{name} is {shown(text)}: it must be a text of 1 to {LONGEST_NAME} bytes")


def _listed(name: str, texts: object) -> list[str]:
    if isinstance(texts, str):
        return [texts]
    if isinstance(texts, bytes) or not isinstance(texts, Iterable):
        raise UsageError(f"{name} is {shown(texts)}: it must be a str, or several")
    return list(cast("Iterable[str]", texts))


def _checked_topics(topics: object) -> list[str]:
    names = _listed("topics", topics)
    for name in names:
        _check_name("a topic", name)
    return names
