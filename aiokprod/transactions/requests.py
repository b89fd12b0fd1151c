"""`Requests`: from actions of the `TransactionMachine` to requests of coordinators, and from their answers to its events."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from aiokprod.cluster.connection.control_request import RequestMessage
from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, BrokerAnswerError
from aiokprod.transactions.coordinator import FIRST_VERSION, SECOND_VERSION, CoordinatorKind, Coordinators, NoAnswer
from aiokprod.transactions.errors_of_causes import missing_partitions
from aiokprod.transactions.failures import TransactionFailures
from aiokprod.transactions.machine import TransactionMachine
from aiokprod.transactions.machine_actions import (
    NO_ANSWER,
    NO_SUCH_PARTITION,
    Action,
    AskMarkers,
    Codes,
    Mode,
    Partition,
    SendAddOffsets,
    SendAddPartitions,
    SendEndTxn,
    SendInitProducerId,
    SendTxnOffsetCommit,
    Verdict,
)
from aiokprod.transactions.missing_partitions import MissingPartitions
from aiokprod.transactions.offset_calls import OffsetCall, OffsetCalls
from aiokprod.transactions.offsets import offset_topics
from aiokprod.wire.codes import name_of
from aiokprod.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from aiokprod.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from aiokprod.wire.messages.end_txn import EndTxnRequest
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest
from aiokprod.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

AnsweredAtOnce: TypeAlias = SendInitProducerId | SendAddPartitions | SendAddOffsets | SendEndTxn | AskMarkers
Asked: TypeAlias = AnsweredAtOnce | SendTxnOffsetCommit
"""The actions that ask a coordinator for something."""


class Came(NamedTuple):
    """The outcome of a request, with the action that asked for it, whose ticket the machine waits for.

    `Requests.ask` returns it in every case and `Requests.take` tells the machine: no request can end without that.
    """

    action: Asked
    outcome: Any
    """What `Coordinators.ask` returned; of offsets the `OffsetCodes`; `NOT_SENT`."""


class OffsetCodes(NamedTuple):
    """An answer to TxnOffsetCommit, judged."""

    codes: Codes


class NotSent(NamedTuple):
    """A request that was not sent, as its call has ended."""


NOT_SENT: Final = NotSent()


class Requests:
    """The requests of one transactional id.

    Args:
        config: of the producer; has a transactional id.
        coordinators: send the requests.
        machine: takes the answers.
        offsets: what the calls of `send_offsets` gave.
        failures: keeps the last request without an answer.
        now: the loop's clock.
    """

    def __init__(
        self,
        config: ProducerConfig,
        coordinators: Coordinators,
        machine: TransactionMachine,
        offsets: OffsetCalls,
        failures: TransactionFailures,
        now: Callable[[], float],
    ) -> None:
        assert config.transactional_id is not None
        self._id = config.transactional_id
        self._timeout_ms = int(config.transaction_timeout_ms)
        self._coordinators = coordinators
        self._machine = machine
        self._offsets = offsets
        self._failures = failures
        self._now = now
        self._missing = MissingPartitions(coordinators, now)

    def ask_now(self, action: Asked, told: Callable[[Callable[[], list[Action]]], None]) -> bool:
        """Send one request within this call, if its coordinator is at hand.

        Args:
            action: what is asked for.
            told: called once, from the event loop, with a function that tells the machine the answer, or that there is
                none, and returns what it wants then. It must not raise.

        Returns:
            False: nothing was sent, and `told` will not be called; `ask` does it.
        """
        if isinstance(action, SendTxnOffsetCommit):  # its answer may lead to further questions
            return False
        message = self._message(action)
        return self._coordinators.ask_now(
            CoordinatorKind.TRANSACTION,
            self._id,
            message,
            self._highest(action, message),
            lambda outcome: told(lambda: self._taken(action, outcome())),
        )

    async def ask(self, action: Asked) -> Came:
        """Send one request and wait for its outcome, which `take` has to be given."""
        if not isinstance(action, SendTxnOffsetCommit):
            message = self._message(action)
            highest = self._highest(action, message)
            return Came(action, await self._coordinators.ask(CoordinatorKind.TRANSACTION, self._id, message, highest))
        call = self._offsets.get(action.number)
        if call is None:  # its transaction was made abortable, before the task that sends this had its turn
            return Came(action, NOT_SENT)
        commit = self._offset_commit(action, call)
        answer = await self._coordinators.ask(
            CoordinatorKind.GROUP, action.group, commit, self._highest(action, commit)
        )
        return Came(action, answer if isinstance(answer, NoAnswer) else await self._offset_codes(action, answer))

    def take(self, came: Came) -> list[Action]:
        """Tell the machine what a request came to; return what it wants then."""
        return self._taken(*came)

    def _message(self, action: AnsweredAtOnce) -> RequestMessage:
        match action:
            case SendInitProducerId():
                return InitProducerIdRequest(self._id, self._timeout_ms, action.producer_id, action.epoch)
            case SendAddPartitions():
                return self._add_partitions(action)
            case SendAddOffsets():
                return AddOffsetsToTxnRequest(self._id, action.producer_id, action.epoch, action.group)
            case SendEndTxn() | AskMarkers():
                is_commit = action.verdict is Verdict.COMMIT
                return EndTxnRequest(self._id, action.producer_id, action.epoch, is_commit)

    def _highest(self, action: Asked, message: RequestMessage) -> int:
        """Return the highest version of a request that the version of transactions allows."""
        # The question for markers is about the transaction before, which was one of the second version.
        is_second = self._machine.mode is Mode.VERSION_2 or isinstance(action, AskMarkers)
        return (SECOND_VERSION if is_second else FIRST_VERSION)[type(message)]

    def _taken(self, action: Asked, outcome: Any) -> list[Action]:
        if isinstance(outcome, NoAnswer):
            return self._unanswered(action, outcome)
        if isinstance(outcome, NotSent):
            return self._machine.lost(action.ticket, False, self._now())
        if isinstance(action, SendTxnOffsetCommit):
            return self._machine.offsets_committed(action.ticket, outcome.codes, self._now())
        return self._answered(action, outcome)

    def _unanswered(self, action: Asked, answer: NoAnswer) -> list[Action]:
        self._failures.unanswered = answer.error
        if answer.code is None:
            return self._machine.lost(action.ticket, answer.is_written, self._now())
        return self._refused(action, answer.code)

    async def _offset_codes(self, action: SendTxnOffsetCommit, answer: TxnOffsetCommitResponse) -> OffsetCodes:
        """Return the answer to TxnOffsetCommit, once it is known whether what is unknown there exists."""
        codes = dict.fromkeys(self._offsets.asked(action.number), NO_ANSWER)
        for topic in answer.topics:
            for partition in topic.partitions:
                if (topic.name, partition.partition_index) in codes:
                    codes[topic.name, partition.partition_index] = partition.error_code
        self._failures.unanswered = _of_offsets(codes)
        judged = await self._missing.judged(action.number, action.group, codes)
        missing = [where for where, code in judged.items() if code == NO_SUCH_PARTITION]
        if missing and self._offsets.get(action.number) is not None:  # else its transaction has ended meanwhile
            self._failures.first = self._failures.first or missing_partitions(action.group, missing)
        return OffsetCodes(judged)

    def _answered(self, action: AnsweredAtOnce, answer: Any) -> list[Action]:
        machine, now = self._machine, self._now()
        match action:
            case SendInitProducerId():
                return machine.init_answered(
                    action.ticket, answer.error_code, answer.producer_id, answer.producer_epoch, now
                )
            case SendAddPartitions():
                added = {
                    (topic.name, result.partition_index): result.partition_error_code
                    for topic in answer.results_by_topic_v3_and_below
                    for result in topic.results_by_partition
                }
                return machine.partitions_added(action.ticket, added, now)
            case SendAddOffsets():
                return machine.offsets_added(action.ticket, answer.error_code, now)
            case AskMarkers():
                return machine.markers_answered(action.ticket, answer.error_code, now)
            case SendEndTxn():
                return machine.end_answered(
                    action.ticket, answer.error_code, answer.producer_id, answer.producer_epoch, now
                )

    def _refused(self, action: Asked, code: int) -> list[Action]:
        """Take a refusal for good of the look-up, or a version that the coordinator does not have, as the answer."""
        machine, now = self._machine, self._now()
        match action:
            case SendInitProducerId():
                return machine.init_answered(action.ticket, code, -1, -1, now)
            case SendAddPartitions():
                return machine.partitions_added(action.ticket, dict.fromkeys(action.partitions, code), now)
            case SendAddOffsets():
                return machine.offsets_added(action.ticket, code, now)
            case SendTxnOffsetCommit():
                return machine.offsets_committed(
                    action.ticket, dict.fromkeys(self._offsets.asked(action.number), code), now
                )
            case AskMarkers():
                return machine.markers_answered(action.ticket, code, now)
            case SendEndTxn():
                return machine.end_answered(action.ticket, code, -1, -1, now)

    def _add_partitions(self, action: SendAddPartitions) -> AddPartitionsToTxnRequest:
        topics: dict[str, list[int]] = {}
        for name, partition in action.partitions:
            topics.setdefault(name, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=action.producer_id,
            v3_and_below_producer_epoch=action.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name, numbers) for name, numbers in topics.items()],
        )

    def _offset_commit(self, action: SendTxnOffsetCommit, call: OffsetCall) -> TxnOffsetCommitRequest:
        offsets, group = call.offsets, call.group
        return TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group.group_id,
            producer_id=action.producer_id,
            producer_epoch=action.epoch,
            generation_id=group.generation_id,
            member_id=group.member_id,
            group_instance_id=group.group_instance_id,
            topics=offset_topics(offsets),
        )

    def forget(self, group: str | None) -> None:
        """Look a coordinator up again before the next request: of the transaction (None), or of a group."""
        if group is None:
            self._coordinators.forget(CoordinatorKind.TRANSACTION, self._id)
        else:
            self._coordinators.forget(CoordinatorKind.GROUP, group)

    def __repr__(self) -> str:
        return f"<Requests of {self._id!r}>"


def _of_offsets(codes: Mapping[Partition, int]) -> AiokprodError | None:
    """Return the refusal of the first partition whose offset was not taken: the cause if their time runs out."""
    for (topic, partition), code in codes.items():
        if code not in (0, NO_ANSWER):
            text = f"the offset of partition {partition} of topic {topic!r} is not taken: {name_of(code)}"
            return BrokerAnswerError(text, code=code, topic=topic, partition=partition)
    return None
