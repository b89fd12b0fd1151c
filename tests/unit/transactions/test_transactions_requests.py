"""From actions of the machine to requests of coordinators, and from their answers to its events."""

from __future__ import annotations

import asyncio
from typing import Any, get_args, get_type_hints

import pytest
from transaction_table import HERE, NEXT, THERE, WHO, Desk

from aiokprod.config import ProducerConfig
from aiokprod.errors import RequestTimeoutError, UnsupportedVersionError
from aiokprod.transactions.coordinator import CoordinatorKind, NoAnswer
from aiokprod.transactions.failures import TransactionFailures
from aiokprod.transactions.machine_actions import (
    Action,
    ForgetCoordinator,
    LostId,
    Mode,
    OffsetsDone,
    Release,
    SendTxnOffsetCommit,
    State,
    TakeIdentity,
)
from aiokprod.transactions.machine_codes import Request
from aiokprod.transactions.offset_calls import OffsetCalls
from aiokprod.transactions.offsets import GroupMetadata, offsets_of
from aiokprod.transactions.requests import Asked, Came, Requests
from aiokprod.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from aiokprod.wire.messages.end_txn import EndTxnResponse
from aiokprod.wire.messages.txn_offset_commit import TxnOffsetCommitResponse

GONE = object()
"""Instead of an answer: the call has ended before its request was sent."""
TRANSACTION, GROUP = CoordinatorKind.TRANSACTION, CoordinatorKind.GROUP


class Scripted:
    """Coordinators that give one answer, and keep what they were asked."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.asked: list[tuple[CoordinatorKind, str, Any, int]] = []
        self.forgotten: list[tuple[CoordinatorKind, str]] = []

    async def ask(self, kind: CoordinatorKind, key: str, message: Any, highest: int) -> Any:
        self.asked.append((kind, key, message, highest))
        return self.answer

    def forget(self, kind: CoordinatorKind, key: str) -> None:
        self.forgotten.append((kind, key))


def asked(desk: Desk, request: Request, answer: object) -> tuple[list[Action], Scripted, TransactionFailures]:
    """Send the request that the machine wants; return what it wants then."""

    async def whole() -> tuple[list[Action], Scripted, TransactionFailures]:
        failures = TransactionFailures("tx", desk.machine)
        offsets, coordinators = OffsetCalls(asyncio.get_running_loop(), failures), Scripted(answer)
        config = ProducerConfig(bootstrap_servers="b:1", transactional_id="tx", transaction_timeout_ms=5000)
        requests = Requests(config, coordinators, desk.machine, offsets, failures, lambda: desk.now)  # type: ignore[arg-type]
        action: Any = desk.sent[request]
        if isinstance(action, SendTxnOffsetCommit):
            call = offsets.new(offsets_of({HERE: 5}), GroupMetadata("g", 3, "m", "i"))
            offsets.add(action.number, call)
            call.done.cancel()
            if answer is GONE:
                offsets.take_all()
        return requests.take(await requests.ask(action)), coordinators, failures

    return asyncio.run(whole())


def desk(mode: Mode, *steps: str) -> Desk:
    made = Desk(mode)
    for step in steps:
        getattr(made, step)()
    return made


def test_partitions_are_added_by_topic() -> None:
    made = desk(Mode.VERSION_1, "begin")
    made.machine.send_partition(HERE, 0.0)
    made.machine.send_partition(("u", 9), 0.0)
    made.add(THERE)
    results = [
        AddPartitionsToTxnTopicResult(topic, [AddPartitionsToTxnPartitionResult(number, 0) for number in numbers])
        for topic, numbers in {"t": (0, 1), "u": (9,)}.items()
    ]
    out, coordinators, _ = asked(
        made, Request.ADD_PARTITIONS, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)
    )
    assert out[0] == Release((HERE, ("u", 9), THERE))
    ((kind, key, message, version),) = coordinators.asked
    assert (kind, key, version) == (TRANSACTION, "tx", 3)
    assert [(topic.name, topic.partitions) for topic in message.v3_and_below_topics] == [("t", [0, 1]), ("u", [9])]


@pytest.mark.parametrize(("mode", "version"), [(Mode.VERSION_1, 4), (Mode.VERSION_2, 5)])
def test_offsets_go_to_the_coordinator_of_the_group(mode: Mode, version: int) -> None:
    made = desk(mode, "commit_offsets")
    out, coordinators, _ = asked(made, Request.OFFSET_COMMIT, TxnOffsetCommitResponse(topics=[]))
    assert OffsetsDone not in {type(action) for action in out}, "an entry that is missing is no success"
    ((kind, key, message, highest),) = coordinators.asked
    assert (kind, key, highest) == (GROUP, "g", version)
    assert (message.generation_id, message.member_id, message.group_instance_id) == (3, "m", "i")


@pytest.mark.parametrize(("mode", "version"), [(Mode.VERSION_1, 4), (Mode.VERSION_2, 5)])
def test_an_end_has_the_version_of_its_transaction(mode: Mode, version: int) -> None:
    made = desk(mode, "end_commit")
    _, coordinators, _ = asked(made, Request.END, EndTxnResponse(producer_id=NEXT[0], producer_epoch=NEXT[1]))
    ((_, _, message, highest),) = coordinators.asked
    assert (message.producer_id, message.producer_epoch, message.committed, highest) == (*WHO, True, version)
    assert made.machine.state is State.READY


def test_the_question_for_markers_has_the_version_of_the_transaction_before() -> None:
    made = desk(Mode.VERSION_2, "end_commit")
    made.answer(Request.END, 0)
    made.did(made.machine.begin(Mode.VERSION_1, 0.0))  # the feature has been taken back meanwhile
    out, coordinators, _ = asked(made, Request.MARKERS, EndTxnResponse(producer_id=NEXT[0], producer_epoch=NEXT[1]))
    ((_, _, message, highest),) = coordinators.asked
    assert (message.producer_id, message.producer_epoch, message.committed, highest) == (*WHO, True, 5)
    assert out[0] == TakeIdentity(*NEXT)


def test_no_answer_is_told_with_whether_it_was_written_and_kept() -> None:
    made = desk(Mode.VERSION_1, "end_commit")
    error = RequestTimeoutError("silence")
    out, _, failures = asked(made, Request.END, NoAnswer(error, is_written=True))
    assert out[0] == ForgetCoordinator(None)
    assert failures.unanswered is error
    assert made.machine._work.commit_may_be_done


@pytest.mark.parametrize("request_", [Request.INIT_PRODUCER_ID, Request.ADD_PARTITIONS, Request.END], ids=str)
def test_a_refusal_for_good_of_the_look_up_is_the_answer(request_: Request) -> None:
    steps = {
        Request.INIT_PRODUCER_ID: ("initialise",),
        Request.ADD_PARTITIONS: ("begin", "add"),
        Request.END: ("end_commit",),
    }
    made = desk(Mode.VERSION_1, *steps[request_])
    out, _, _ = asked(made, request_, NoAnswer(UnsupportedVersionError("old"), is_written=False, code=35))
    assert LostId in {type(action) for action in out}
    assert made.machine.state is State.FAILED


@pytest.mark.parametrize("mode", Mode, ids=lambda mode: mode.name)
def test_offsets_whose_call_has_ended_are_not_sent_and_not_waited_for(mode: Mode) -> None:
    made = desk(mode, "commit_offsets", "fail")
    _, coordinators, failures = asked(made, Request.OFFSET_COMMIT, GONE)
    assert coordinators.asked == []
    assert failures.unanswered is None
    assert made.machine._asked == {}
    assert not made.machine._work.is_haunted, "not sent is no request that may come late"


def test_what_a_request_came_to_is_taken_with_the_ticket_that_asked() -> None:
    """The machine waits for each ticket that it gives out: `ask` returns nothing that has none."""
    assert get_type_hints(Requests.ask)["return"] is Came
    assert get_type_hints(Requests.take)["came"] is Came
    assert all("ticket" in action._fields for action in get_args(Asked))
