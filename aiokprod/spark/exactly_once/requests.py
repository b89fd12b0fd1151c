"""`Requests`: carries out the requests of the procedures on a cluster. One per procedure, on the engine's loop.

A request is sent again as long as its answer says "later", or none comes, until the deadline of the procedure; then the batch
fails, and its replay begins with an opening that finds out what has happened.

Invariant: a transaction is reported as ended only by an answer of its coordinator; a decision counts as recorded only if its
EndTxn was answered so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final, NoReturn

from aiokprod.cluster.client import ClusterClient
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    BrokerAnswerError,
    ClusterAuthorizationError,
    ClusterError,
    UnknownTopicError,
    UnsupportedVersionError,
    advise,
)
from aiokprod.logs import GuardedLogger
from aiokprod.randomness import new_random
from aiokprod.spark.errors import SinkUsageError
from aiokprod.spark.exactly_once.errors import ExactlyOnceError, missing_right
from aiokprod.spark.exactly_once.facts import (
    Chunk,
    Fact,
    Names,
    Place,
    by_group,
    decision_texts,
    done_text,
    read_decision,
    read_done,
    read_head,
    read_marker,
)
from aiokprod.spark.exactly_once.procedures import (
    CommitAll,
    Facts,
    FenceAll,
    ListLeftovers,
    ReadFacts,
    ReadMarkers,
    ReadState,
    Request,
    State,
    TakeToken,
    WriteDecision,
    WriteDone,
)
from aiokprod.spark.exactly_once.protocol import Attempt, BatchName, Decision, Fate, Marker, Token
from aiokprod.transactions.coordinator import (
    FIRST_VERSION,
    SECOND_VERSION,
    CoordinatorKind,
    Coordinators,
    NoAnswer,
    RetryPace,
    codes_of,
)
from aiokprod.transactions.ending_codes import Answer, answer_of
from aiokprod.transactions.machine_codes import Kind, judge
from aiokprod.transactions.machine_codes import Request as Verb
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokprod.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from aiokprod.wire.messages.end_txn import EndTxnRequest
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest
from aiokprod.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from aiokprod.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from aiokprod.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from aiokprod.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

_log = GuardedLogger("aiokprod.spark")
FEATURE: Final = "transaction.version"
AT_A_TIME: Final = 64
"""Transactions that are ended at the same time; a broker answers the requests of a connection one after the other."""
OTHER_VERSIONS: Final[dict[type, int]] = {OffsetFetchRequest: 7, OffsetCommitRequest: 9}
"""The last versions that name topics, and carry one group."""
PENDING_ATTEMPTS: Final = 5
"""Looks at a marker that is pending before leftovers are aborted again: an end takes some milliseconds (broker: 12.3)."""
OPEN: Final = "Ongoing"
NO_EPOCH: Final = -1
SWEEP_S: Final = 3.0
"""The longest time to find leftovers behind a commit, and the longest to abort them. Short: the batch is done, and a broker
that has died is asked in vain."""
_REFUSED: Final = frozenset(
    {
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.OFFSET_METADATA_TOO_LARGE,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    }
)
"""Codes after which no repetition helps."""


def log_left(error: Exception) -> None:
    """Log that leftovers were not aborted.

    Args:
        error: why.
    """
    _log.warning(
        "transactions that are part of no batch are left to the next batch, or to their timeout: %s: %s",
        type(error).__name__, error,
    )  # fmt: skip


def reached(step: str, sink: str) -> None:
    """Pass a point between two requests of a sink. Tests replace it, to end a process there."""


class Requests:
    """The requests of one procedure.

    Args:
        client: a started one.
        coordinators: found by it.
        config: of the client.
        names: of the sink; its slots are those of the marker topic.
        deadline: loop time, seconds.
    """

    def __init__(
        self,
        client: ClusterClient,
        coordinators: Coordinators,
        config: ProducerConfig,
        names: Names,
        deadline: float,
    ) -> None:
        self.names = names
        self._client = client
        self._coordinators = coordinators
        self._slots: asyncio.Task[int] | None = None
        self._pace = RetryPace(config, new_random())
        self._timeout_ms = int(config.transaction_timeout_ms)
        self._request_timeout_s = config.request_timeout_ms / 1000
        self._deadline = deadline
        self._trouble: AiokprodError | None = None

    @property
    def version(self) -> int:
        """The version of the transaction protocol that is in force."""
        return 2 if self._client.finalized_features.get(FEATURE, 0) >= 2 else 1

    async def carry_out(self, request: Request) -> Any:
        """Carry out one request, and return its answer.

        Raises:
            ExactlyOnceError: there was no answer in time; the cause says why.
            SinkUsageError: the brokers are too old.
            ClusterError: the brokers refuse: a right is missing, for example.
        """
        name = type(request).__name__
        reached(f"before {name}", self.names.sink)
        scope = asyncio.timeout_at(self._deadline)
        try:
            async with scope:
                answer = await self._carry_out(request)
        except TimeoutError:
            if not scope.expired():
                raise
            raise self._late(f"{name} was not done in time") from self._trouble
        reached(f"after {name}", self.names.sink)
        return answer

    async def _carry_out(self, request: Request) -> Any:
        match request:
            case TakeToken(after):
                return await self._take_token(after)
            case ReadFacts():
                return await self._read_facts()
            case ReadState():
                return State(*await asyncio.gather(self._read_facts(), self._leftovers()))
            case CommitAll(attempts, version):
                return await self._commit_all(attempts, version)
            case ListLeftovers():
                return await self._leftovers()
            case FenceAll(attempts):
                await self._at_a_time(attempts, self._fence)
            case ReadMarkers(tasks):
                return await self._read_markers(tasks)
            case WriteDecision(token, decision):
                return await self._write_decision(token, decision)
            case WriteDone(batch, lists):
                return await self._finish(batch, lists)
        return None

    # ------------------------------------------------------------------ the topic
    def ask_slots(self, *, creates: bool, block_s: float) -> None:
        """Ask for the number of partitions of the marker topic, beside the next requests; `_read_facts` waits for it.

        Args:
            creates: let the brokers create the topic.
            block_s: how long an unknown topic is waited for.
        """
        asking = self._ask_slots(creates, asyncio.get_running_loop().time() + block_s)
        self._slots = asyncio.get_running_loop().create_task(asking, name="aiokprod-spark-slots")

    async def close(self) -> None:
        """End what is asked for beside the requests."""
        if self._slots is not None:
            self._slots.cancel()
            await asyncio.gather(self._slots, return_exceptions=True)

    async def _ask_slots(self, creates: bool, until: float) -> int:
        topic = self.names.topic
        attempt = 0
        while True:
            request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=creates)
            answer: MetadataResponse | None = await self._ask_any(request, None)
            code = answer.topics[0].error_code if answer is not None and answer.topics else ErrorCode.NONE
            if answer is not None and code in (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION):
                self._refuse(code, f"the topic {topic!r} cannot be used")
            if answer is not None and not code and answer.topics and answer.topics[0].partitions:
                return len(answer.topics[0].partitions)
            if answer is not None and code:
                self._trouble = BrokerAnswerError(f"the topic {topic!r}: {name_of(code)}", code=code)
                if asyncio.get_running_loop().time() > until:
                    raise UnknownTopicError(
                        f"the topic {topic!r} does not exist, or has no leader: {name_of(code)}", topic=topic
                    )
            attempt += 1
            await self._pause(attempt)

    # ------------------------------------------------------------------ the token, and the fences
    async def _take_token(self, after: Token | None) -> Token | None:
        producer_id, epoch = (-1, NO_EPOCH) if after is None else after
        found = await self._init(self.names.control, producer_id, epoch)
        return None if found is None else Token(*found)

    async def _fence(self, each: Attempt) -> None:
        await self._init(self._task(each), each.producer_id, each.epoch)

    async def _init(self, transactional_id: str, producer_id: int, epoch: int) -> tuple[int, int] | None:
        """Take an id over; None: it has another identity than the given one (for version 1 also: it had a transaction)."""
        message = InitProducerIdRequest(transactional_id, self._timeout_ms, producer_id, epoch)
        attempt = 0
        while True:
            attempt += 1
            if epoch != NO_EPOCH and not await self._has(transactional_id, producer_id, epoch):
                return None
            answer = await self._ask(CoordinatorKind.TRANSACTION, transactional_id, message)
            if answer is not None:
                kind = judge(Verb.INIT_PRODUCER_ID, answer.error_code).kind
                if kind is Kind.DONE:
                    return answer.producer_id, answer.producer_epoch
                if kind is Kind.FENCED or answer.error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                    return None
                self._note(answer.error_code, transactional_id)
                if kind is Kind.CONCURRENT:
                    await asyncio.sleep(self._pace.concurrent_s(attempt))
                    continue
            await self._pause(attempt)

    async def _has(self, transactional_id: str, producer_id: int, epoch: int) -> bool:
        """Return whether an id still has this identity, or none.

        The coordinator alone does not tell in time: while a transaction is open, it compares only the producer id, and aborts
        the transaction of whatever epoch (broker: 9.9a).
        """
        state = await self._described(transactional_id)
        if state is None:
            return True
        raised = 0 if state.transaction_state == OPEN else 1  # by the end of the transaction
        return state.producer_id == producer_id and 0 <= state.producer_epoch - epoch <= raised

    # ------------------------------------------------------------------ ends
    async def _commit_all(self, attempts: tuple[Attempt, ...], version: int) -> dict[Attempt, Fate]:
        fates: dict[Attempt, Fate] = {}

        async def commit(each: Attempt) -> None:
            fates[each] = await self._commit(self._task(each), each.producer_id, each.epoch, version)
            reached("after EndTxn", self.names.sink)

        await self._at_a_time(attempts, commit)
        return fates

    async def _commit(self, transactional_id: str, producer_id: int, epoch: int, version: int) -> Fate:
        message = EndTxnRequest(transactional_id, producer_id, epoch, True)
        attempt = 0
        while True:
            attempt += 1
            answer = await self._ask(CoordinatorKind.TRANSACTION, transactional_id, message, version)
            found = Answer.AGAIN if answer is None else answer_of(answer.error_code)
            match found:
                case Answer.DONE:
                    return Fate.COMMITTED
                case Answer.OTHER:
                    return Fate.ABORTED
                case Answer.TAKEN:
                    return Fate.GONE
                case _:
                    if answer is not None:
                        self._note(answer.error_code, transactional_id)
            if found is Answer.CONCURRENT:
                await asyncio.sleep(self._pace.concurrent_s(attempt))
            else:
                await self._pause(attempt)

    async def _at_a_time(self, attempts: Iterable[Attempt], act: Callable[[Attempt], Any]) -> None:
        """Act on all, some at the same time."""
        left = list(attempts)
        await self._coordinators.find(CoordinatorKind.TRANSACTION, [self._task(each) for each in left])
        left.reverse()

        async def some() -> None:
            while left:
                await act(left.pop())

        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(AT_A_TIME, len(left))):
                    tasks.create_task(some())
        except ExceptionGroup as several:
            raise several.exceptions[0] from None

    async def _leftovers(self) -> tuple[Attempt, ...]:
        """Find the open transactions of tasks, with their identities."""
        attempt = 0
        while True:
            attempt += 1
            found = await self._try_leftovers()
            if found is not None:
                return found
            await self._pause(attempt)

    async def _try_leftovers(self) -> tuple[Attempt, ...] | None:
        cluster: MetadataResponse | None = await self._ask_any(MetadataRequest(topics=[]), None)
        if cluster is None:
            return None
        listing = ListTransactionsRequest(state_filters=[OPEN])
        answers: list[ListTransactionsResponse | None] = await asyncio.gather(
            *(self._ask_any(listing, broker.node_id) for broker in cluster.brokers)
        )
        ids: list[str] = []
        for answer in answers:
            if answer is None:
                return None
            if answer.error_code:
                self._note(answer.error_code, self.names.prefix)
                return None
            ids += [each.transactional_id for each in answer.transaction_states]
        ours = [each for each in ids if self.names.task_of(each) is not None]
        return tuple([found for each in ours if (found := await self._identity(each)) is not None])

    async def _identity(self, transactional_id: str) -> Attempt | None:
        """Return the open transaction of an id; None: there is none any more."""
        place = self.names.task_of(transactional_id)
        state = await self._described(transactional_id)
        if state is None or state.transaction_state != OPEN or place is None:
            return None
        return Attempt(*place, state.producer_id, state.producer_epoch)

    async def _described(self, transactional_id: str) -> TransactionState | None:
        """Return what the coordinator knows of an id; None: nothing."""
        attempt = 0
        while True:
            attempt += 1
            answer: DescribeTransactionsResponse | None = await self._ask(
                CoordinatorKind.TRANSACTION,
                transactional_id,
                DescribeTransactionsRequest(transactional_ids=[transactional_id]),
            )
            state = None if answer is None or not answer.transaction_states else answer.transaction_states[0]
            if state is not None and state.error_code in (ErrorCode.NONE, ErrorCode.TRANSACTIONAL_ID_NOT_FOUND):
                return None if state.error_code else state
            if state is not None:
                self._note(state.error_code, transactional_id)
            await self._pause(attempt)

    # ------------------------------------------------------------------ facts
    async def _read_facts(self) -> Facts:
        first_place = self.names.decision(0)  # the same for any number of slots
        done_place = self.names.done
        found = await self._read([first_place, done_place])
        assert found is not None  # only a driver writes them, and the token has ended its transaction
        if self._slots is not None:
            self.names = Names(self.names.sink, self.names.topic, await self._slots)
        done = read_done(found[done_place]) if done_place in found else None
        if first_place not in found:
            return Facts(None, done)
        head = read_head(found[first_place])
        # Where facts are does not change with the number of partitions of the marker topic: its first number holds.
        self.names = Names(self.names.sink, self.names.topic, min(head.slots, self.names.slots))
        places = [self.names.decision(number) for number in range(head.chunks)]
        if len(places) > 1:
            found |= await self._read(places[1:]) or {}
        missing = [place for place in places if place not in found]
        if missing:
            raise ExactlyOnceError(
                f"a part of the decision is missing: group {missing[0][0]!r}, partition {missing[0][1]}"
            )
        return Facts(read_decision(found[place] for place in places), done)

    async def _read_markers(self, tasks: int) -> dict[int, Marker] | None:
        places = {self.names.marker(number): number for number in range(tasks)}
        found: dict[Place, Fact] | None = None
        for attempt in range(PENDING_ATTEMPTS):
            found = await self._read(list(places), waits=False)
            if found is not None:
                break
            await self._pause(attempt + 1)
        return None if found is None else {places[place]: read_marker(fact) for place, fact in found.items()}

    async def _read(self, places: list[Place], *, waits: bool = True) -> dict[Place, Fact] | None:
        """Read stable offsets; None: one is pending, and `waits` is False."""
        groups = by_group(dict.fromkeys(places, Fact(0, "")))
        parts = await asyncio.gather(
            *(self._read_group(group, sorted(asked), waits) for group, asked in groups.items())
        )
        found: dict[Place, Fact] = {}
        for part in parts:
            if part is None:
                return None
            found |= part
        return found

    async def _read_group(self, group: str, partitions: list[int], waits: bool) -> dict[Place, Fact] | None:
        attempt = 0
        while True:
            attempt += 1
            topics = [OffsetFetchRequestTopic(self.names.topic, partitions)]
            message = OffsetFetchRequest(group_id=group, topics=topics, require_stable=True)
            answer = await self._ask(CoordinatorKind.GROUP, group, message)
            codes: set[int] = set() if answer is None else set(codes_of(answer))
            codes -= {ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
            if answer is not None and not codes:
                break
            if ErrorCode.UNSTABLE_OFFSET_COMMIT in codes and not waits:
                return None
            for code in codes:
                self._note(code, group)
            await self._pause(attempt)
        return {
            (group, each.partition_index): Fact(each.committed_offset, each.metadata or "")
            for topic in answer.topics
            for each in topic.partitions
            if each.committed_offset >= 0
        }

    async def _finish(self, batch: BatchName, lists: bool) -> tuple[Attempt, ...]:
        listing = asyncio.get_running_loop().create_task(self._listed(lists), name="aiokprod-spark-leftovers")
        try:
            await self._write_done(batch)
            return await listing
        finally:
            listing.cancel()

    async def _listed(self, lists: bool) -> tuple[Attempt, ...]:
        """Find the leftovers of a finished batch, or give up: it is finished whatever comes of this."""
        if not lists:
            return ()
        left_s = self._deadline - asyncio.get_running_loop().time()
        try:
            # Half of what is left: at the deadline itself the batch, which is done, would fail.
            async with asyncio.timeout(min(SWEEP_S, left_s / 2)):
                return await self._leftovers()
        except TimeoutError:
            log_left(self._late("they were not found in time"))
        except Exception as error:
            log_left(error)
        return ()

    async def _write_done(self, batch: BatchName) -> None:
        group, partition = self.names.done
        fact = done_text(batch)
        offset = OffsetCommitRequestPartition(partition, fact.offset, -1, fact.text)
        message = OffsetCommitRequest(
            group_id=group, topics=[OffsetCommitRequestTopic(self.names.topic, partitions=[offset])]
        )
        await self._until_taken(CoordinatorKind.GROUP, group, message, 1)

    async def _write_decision(self, token: Token, decision: Decision) -> bool:
        """Record a decision in a transaction of the control id; False: the token is an old one."""
        control, version = self.names.control, decision.version
        chunks: dict[str, list[Chunk]] = {}
        for chunk in decision_texts(self.names, decision):
            chunks.setdefault(chunk.place[0], []).append(chunk)
        for group, own in chunks.items():
            if version == 1:
                adding = AddOffsetsToTxnRequest(control, token.producer_id, token.epoch, group)
                if not await self._until_taken(CoordinatorKind.TRANSACTION, control, adding, version):
                    return False
            partitions = [
                TxnOffsetCommitRequestPartition(each.place[1], each.fact.offset, -1, each.fact.text) for each in own
            ]
            message = TxnOffsetCommitRequest(
                transactional_id=control,
                group_id=group,
                producer_id=token.producer_id,
                producer_epoch=token.epoch,
                topics=[TxnOffsetCommitRequestTopic(self.names.topic, partitions)],
            )
            if not await self._until_taken(CoordinatorKind.GROUP, group, message, version):
                return False
        reached("inside WriteDecision", self.names.sink)
        fate = await self._commit(control, token.producer_id, token.epoch, version)
        return fate is Fate.COMMITTED

    async def _until_taken(self, kind: CoordinatorKind, key: str, message: Any, version: int) -> bool:
        """Send a request until it is taken; False: the epoch is an old one."""
        attempt = 0
        while True:
            attempt += 1
            answer = await self._ask(kind, key, message, version)
            if answer is not None:
                codes = set(codes_of(answer)) - {ErrorCode.NONE}
                if not codes:
                    return True
                if codes & {
                    ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
                    ErrorCode.INVALID_TXN_STATE,
                }:  # fmt: skip
                    return False
                for code in codes:
                    self._note(code, key)
            await self._pause(attempt)

    # ------------------------------------------------------------------ one request
    def _task(self, each: Attempt) -> str:
        return self.names.task(each.generation, each.partition, each.attempt)

    async def _ask(self, kind: CoordinatorKind, key: str, message: Any, version: int = 1) -> Any:
        """Send a request to a coordinator, once; None: it was not answered, and may be sent again."""
        versions = (SECOND_VERSION if version == 2 else FIRST_VERSION) | OTHER_VERSIONS
        highest = next(
            (found for kind_of, found in versions.items() if isinstance(message, kind_of)), message.MAX_VERSION
        )
        answer = await self._coordinators.ask(kind, key, message, highest)
        if not isinstance(answer, NoAnswer):
            return answer
        self._trouble = answer.error
        if answer.code is not None:
            self._refuse(answer.code, answer.error.message)
        return None

    async def _ask_any(self, message: Any, node_id: int | None) -> Any:
        """Send a request to a broker, once; None: it was not answered, and may be sent again."""
        try:
            return await self._client.request(message, node_id=node_id, timeout_s=self._request_timeout_s)
        except UnsupportedVersionError as error:
            self._refuse(int(ErrorCode.UNSUPPORTED_VERSION), error.message)
        except ClusterError as error:
            self._trouble = error
            return None

    def _note(self, code: int, what: str) -> None:
        """Keep an error that may pass, for the text of the failure. One that cannot pass is raised."""
        if code in _REFUSED:
            self._refuse(code, f"{what!r} is refused")
        self._trouble = BrokerAnswerError(f"{what!r}: {name_of(code)}", code=code)

    def _refuse(self, code: int, text: str) -> NoReturn:
        if code == ErrorCode.UNSUPPORTED_VERSION:
            raise SinkUsageError(
                "delivery is exactly_once, but the brokers are older than Kafka 3.0, which cannot list transactions, or their"
                f" feature {FEATURE} was lowered to 0 while a batch was unfinished: {text}"
            )
        if code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            raise SinkUsageError(
                "kafka.transaction.timeout.ms is larger than the brokers allow (transaction.max.timeout.ms, 900000 by default)"
            )
        if code in (ErrorCode.OFFSET_METADATA_TOO_LARGE, ErrorCode.INVALID_GROUP_ID, ErrorCode.INVALID_REQUEST):
            raise BrokerAnswerError(f"{text}: {name_of(code)}", code=code)
        error = ClusterAuthorizationError(f"{text}: {name_of(code)}", code=code)
        advise(error, missing_right(code, self.names) or error.advice)
        raise error

    def _late(self, text: str) -> ExactlyOnceError:
        """Return the error of what was not done in time, with the last answer."""
        why = "" if self._trouble is None else f": {self._trouble.message}"
        return ExactlyOnceError(f"{text}{why}")

    async def _pause(self, attempt: int) -> None:
        await asyncio.sleep(self._pace.usual_s(attempt))
