"""The coordinator's state machine: every state times every request, in both versions of the protocol, and the corners."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest

from aiokprod.testing.mock.transactions.coordinator import IdentityAnswer, TransactionCoordinator
from aiokprod.testing.mock.transactions.metadata import (
    LAST_EPOCH,
    TRANSITIONS,
    ProducerIdentity,
    TransactionMetadata,
    TransactionState,
)
from aiokprod.wire.codes import ErrorCode

NOW_MS = 1_000_000
PRODUCER_ID = 1
PARTITION = ("t", 0)
TIMEOUT_MS = 60_000


class Machine:
    """A coordinator with one transactional id, and what a client of one version would do with it."""

    def __init__(self, version: int) -> None:
        ids = count(PRODUCER_ID)
        self.coordinator = TransactionCoordinator(lambda: next(ids), version=version)
        self.version = version
        self.own = ProducerIdentity(PRODUCER_ID, 0)

    @property
    def metadata(self) -> TransactionMetadata:
        return self.coordinator.ids["tx"]

    @property
    def stale(self) -> ProducerIdentity:
        return ProducerIdentity(self.own.producer_id, self.own.epoch - 1)

    @property
    def future(self) -> ProducerIdentity:
        return ProducerIdentity(self.own.producer_id, self.own.epoch + 1)

    @property
    def stranger(self) -> ProducerIdentity:
        return ProducerIdentity(99, self.own.epoch)

    def init(self, expected: ProducerIdentity | None = None, *, timeout_ms: int = TIMEOUT_MS) -> IdentityAnswer:
        return self.coordinator.init_producer_id("tx", timeout_ms, expected, NOW_MS)

    def add(self, who: ProducerIdentity, partition: tuple[str, int] = PARTITION, now_ms: int = NOW_MS) -> ErrorCode:
        return self.coordinator.add_partitions("tx", who, [partition], now_ms, in_second_version=self.version == 2)

    def verify(self, who: ProducerIdentity, partition: tuple[str, int] = PARTITION) -> ErrorCode:
        return self.coordinator.verify("tx", who, partition)

    def end(self, who: ProducerIdentity, commits: bool) -> IdentityAnswer:
        end = self.coordinator.end_and_bump if self.version == 2 else self.coordinator.end
        return end("tx", who, commits=commits, now_ms=NOW_MS)

    def take(self, answer: IdentityAnswer) -> None:
        assert isinstance(answer, ProducerIdentity), answer
        self.own = answer

    def bring_to(self, state: str) -> Machine:
        if state == "unknown":
            return self
        self.take(self.init())
        self.take(self.init())  # so that there is an epoch before
        if state != "Empty":
            assert self.add(self.own) == 0
        if state.startswith(("Prepare", "Complete")):
            self.take(self.end(self.own, state.endswith("Commit")))
        if state.startswith("Complete"):
            self.coordinator.complete("tx", NOW_MS)
        assert self.metadata.state.value == state
        return self


REQUESTS: dict[str, Callable[[Machine], IdentityAnswer]] = {
    "init": lambda m: m.init(),
    "init own": lambda m: m.init(m.own),
    "init stale": lambda m: m.init(m.stale),
    "init future": lambda m: m.init(m.future),
    "init stranger": lambda m: m.init(m.stranger),
    "add": lambda m: m.add(m.own),
    "add stale": lambda m: m.add(m.stale),
    "add future": lambda m: m.add(m.future),
    "add stranger": lambda m: m.add(m.stranger),
    "verify": lambda m: m.verify(m.own),
    "verify other": lambda m: m.verify(m.own, ("t", 1)),
    "verify stale": lambda m: m.verify(m.stale),
    "verify stranger": lambda m: m.verify(m.stranger),
    "commit": lambda m: m.end(m.own, True),
    "abort": lambda m: m.end(m.own, False),
    "commit stale": lambda m: m.end(m.stale, True),
    "abort stale": lambda m: m.end(m.stale, False),
    "commit future": lambda m: m.end(m.future, True),
    "abort future": lambda m: m.end(m.future, False),
    "commit stranger": lambda m: m.end(m.stranger, True),
    "abort stranger": lambda m: m.end(m.stranger, False),
}

# Each cell: the code, or how far the epoch is above the one that the client holds ("+1"; "new" is another producer id),
# then the state afterwards if it is another one.
FENCED_EVERYWHERE = {
    "init stranger": "90", "add stale": "90", "add future": "90", "add stranger": "49", "verify stale": "90",
    "verify stranger": "49", "commit future": "90", "abort future": "90", "commit stranger": "49",
    "abort stranger": "49",
}  # fmt: skip

UNKNOWN = {
    "init": "new Empty", "init own": "new Empty", "init stale": "new Empty", "init future": "new Empty",
    "init stranger": "new Empty", **{name: "49" for name in REQUESTS if not name.startswith("init")},
}  # fmt: skip

EMPTY = {
    **FENCED_EVERYWHERE,
    "init": "+1", "init own": "+1", "init stale": "90", "init future": "90",
    "add": "0 Ongoing", "verify": "120", "verify other": "120", "commit": "48", "commit stale": "90",
    "abort stale": "90",
}  # fmt: skip

ONGOING = {
    **FENCED_EVERYWHERE,
    # Any client with the producer id ends the transaction, whatever its epoch: it is told the owner when it asks again.
    "init": "51 PrepareAbort", "init own": "51 PrepareAbort", "init stale": "51 PrepareAbort",
    "init future": "51 PrepareAbort",
    "add": "0", "verify": "0", "verify other": "120", "commit stale": "90", "abort stale": "90",
}  # fmt: skip

COMPLETING = {
    **FENCED_EVERYWHERE,
    "init": "51", "init own": "51", "init stale": "51", "init future": "51", "add": "51", "verify": "51",
    "verify other": "51",
}  # fmt: skip

COMPLETE = {
    **FENCED_EVERYWHERE,
    "init": "+1 Empty", "init own": "+1 Empty", "init future": "90", "add": "0 Ongoing", "verify": "120",
    "verify other": "120",
}  # fmt: skip

TABLE: dict[int, dict[str, dict[str, str]]] = {
    1: {
        "unknown": UNKNOWN,
        "Empty": {**EMPTY, "abort": "48"},
        "Ongoing": {**ONGOING, "commit": "+0 PrepareCommit", "abort": "+0 PrepareAbort"},
        "PrepareCommit": {**COMPLETING, "commit": "51", "abort": "51", "commit stale": "90", "abort stale": "90"},
        "PrepareAbort": {**COMPLETING, "commit": "51", "abort": "51", "commit stale": "90", "abort stale": "90"},
        "CompleteCommit": {
            **COMPLETE, "init stale": "90", "commit": "+0", "abort": "48", "commit stale": "90", "abort stale": "90",
        },
        "CompleteAbort": {
            **COMPLETE, "init stale": "90", "commit": "48", "abort": "+0", "commit stale": "90", "abort stale": "90",
        },
    },
    2: {
        "unknown": UNKNOWN,
        "Empty": {**EMPTY, "abort": "+1 PrepareAbort"},
        "Ongoing": {**ONGOING, "commit": "+1 PrepareCommit", "abort": "+1 PrepareAbort"},
        # The client has the new epoch already; the request repeated is the one with the epoch before. broker: 10.4e
        "PrepareCommit": {**COMPLETING, "commit": "51", "abort": "51", "commit stale": "51", "abort stale": "51"},
        "PrepareAbort": {**COMPLETING, "commit": "51", "abort": "51", "commit stale": "51", "abort stale": "51"},
        "CompleteCommit": {
            **COMPLETE, "init stale": "+0 Empty", "commit": "48", "abort": "+1 PrepareAbort", "commit stale": "+0",
            "abort stale": "48",
        },
        "CompleteAbort": {
            **COMPLETE, "init stale": "+0 Empty", "commit": "48", "abort": "+1 PrepareAbort", "commit stale": "48",
            "abort stale": "+0",
        },
    },
}  # fmt: skip


def told(machine: Machine, state_before: str, answer: IdentityAnswer) -> str:
    if isinstance(answer, ErrorCode):
        text = str(int(answer))
    elif state_before == "unknown":
        assert answer.epoch == 0
        text = "new"
    else:
        assert answer.producer_id == machine.own.producer_id
        text = f"+{answer.epoch - machine.own.epoch}"
    found = machine.coordinator.ids.get("tx")
    state = "unknown" if found is None else found.state.value
    return text if state == state_before else f"{text} {state}"


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("state", TABLE[1])
def test_every_request_in_every_state(state: str, request_name: str, version: int) -> None:
    machine = Machine(version).bring_to(state)
    expected = TABLE[version][state][request_name]
    assert told(machine, state, REQUESTS[request_name](machine)) == expected


def test_the_table_has_every_state_that_an_id_can_be_in() -> None:
    states = {state.value for state in TransactionState} - {"Dead"}
    for rows in TABLE.values():
        assert set(rows) - {"unknown"} == states
        assert all(set(row) == set(REQUESTS) for row in rows.values())


def test_every_state_says_where_it_may_go_and_no_other_move_is_made() -> None:
    assert set(TRANSITIONS) == set(TransactionState)
    for start, allowed in TRANSITIONS.items():
        for goal in TransactionState:
            metadata = TransactionMetadata(
                transactional_id="tx", producer_id=1, timeout_ms=1, updated_ms=0, state=start
            )
            if goal in allowed:
                metadata.move(goal, 5)
                assert (metadata.state, metadata.updated_ms) == (goal, 5)
            else:
                with pytest.raises(AssertionError, match=f"tx: {start.value} -> {goal.value}"):
                    metadata.move(goal, 5)
                assert metadata.state is start


# ---------------------------------------------------------------------- which pairs may write


@pytest.mark.parametrize(("timeout_ms", "code"), [(0, 50), (-1, 50), (900_001, 50), (900_000, None), (1, None)])
def test_a_timeout_must_be_one_that_the_broker_allows(timeout_ms: int, code: int | None) -> None:
    answer = Machine(2).init(timeout_ms=timeout_ms)
    assert answer == code if code else isinstance(answer, ProducerIdentity)


def test_an_empty_id_is_no_id() -> None:
    coordinator, who = Machine(2).coordinator, ProducerIdentity(1, 0)
    assert coordinator.init_producer_id("", 1000, None, NOW_MS) == 42
    assert coordinator.add_partitions("", who, [PARTITION], NOW_MS, in_second_version=True) == 42
    assert coordinator.verify("", who, PARTITION) == 42
    assert coordinator.end("", who, commits=True, now_ms=NOW_MS) == 42
    assert coordinator.end_and_bump("", who, commits=True, now_ms=NOW_MS) == 42


def test_a_lost_answer_to_a_recovery_is_given_again_until_another_client_takes_the_id() -> None:
    machine = Machine(2).bring_to("Empty")
    before = machine.own
    first = machine.init(before)
    assert first == ProducerIdentity(PRODUCER_ID, before.epoch + 1)
    assert machine.init(before) == first
    assert machine.init() == ProducerIdentity(PRODUCER_ID, before.epoch + 2)
    assert machine.init(before) == ErrorCode.PRODUCER_FENCED
    assert isinstance(first, ProducerIdentity)
    assert machine.init(first) == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("recovers", [True, False])
def test_a_client_asks_for_the_id_while_a_transaction_is_open(version: int, recovers: bool) -> None:
    machine = Machine(version).bring_to("Ongoing")
    expected = machine.own if recovers else None
    assert machine.init(expected) == 51
    assert machine.metadata.identity == machine.future  # what the marker carries
    machine.coordinator.complete("tx", NOW_MS)
    if not recovers:
        assert machine.init() == ProducerIdentity(PRODUCER_ID, machine.own.epoch + 2)
    elif version == 2:
        assert machine.init(expected) == machine.future
    else:
        assert machine.init(expected) == 90  # it has fenced itself


@pytest.mark.parametrize("version", [1, 2])
def test_an_exhausted_producer_id_is_replaced_and_the_retry_finds_the_new_one(version: int) -> None:
    machine = Machine(version).bring_to("Empty")
    machine.metadata.epoch = LAST_EPOCH
    last = ProducerIdentity(PRODUCER_ID, LAST_EPOCH)
    fresh = machine.init(last)
    assert fresh == ProducerIdentity(PRODUCER_ID + 1, 0)
    assert machine.init(last) == fresh
    assert machine.init(ProducerIdentity(PRODUCER_ID, 3)) == 90
    assert machine.add(last) == 49
    assert machine.init() == ProducerIdentity(PRODUCER_ID + 1, 1)
    assert machine.init(last) == 90


def test_the_end_of_a_transaction_replaces_an_exhausted_producer_id() -> None:
    machine = Machine(2).bring_to("Empty")
    machine.metadata.epoch = LAST_EPOCH
    last = machine.own = ProducerIdentity(PRODUCER_ID, LAST_EPOCH)
    assert machine.add(last) == 0
    fresh = machine.end(last, True)
    assert fresh == ProducerIdentity(PRODUCER_ID + 1, 0)
    assert machine.metadata.identity == ProducerIdentity(PRODUCER_ID, LAST_EPOCH + 1)  # what the marker carries
    assert machine.end(last, True) == 51 and machine.end(last, False) == 51
    assert isinstance(fresh, ProducerIdentity) and machine.add(fresh) == 51
    machine.coordinator.complete("tx", NOW_MS)
    assert machine.end(last, True) == fresh and machine.end(last, False) == 48
    assert machine.add(last) == 49
    assert machine.add(fresh) == 0
    assert machine.end(last, True) == 49


# ---------------------------------------------------------------------- late copies, and strangers


def test_a_late_commit_cannot_hit_the_next_transaction_in_the_second_version_and_does_in_the_first() -> None:
    for version in (1, 2):
        machine = Machine(version).bring_to("CompleteCommit")
        late = machine.own if version == 1 else machine.stale
        assert machine.add(machine.own) == 0
        answer = machine.end(late, True)
        if version == 2:
            assert answer == 90 and machine.metadata.is_ongoing
        else:
            assert answer == machine.own and machine.metadata.is_completing


def test_versions_of_requests_mix() -> None:
    machine = Machine(2).bring_to("Ongoing")
    assert machine.coordinator.end("tx", machine.own, commits=True, now_ms=NOW_MS) == machine.own
    machine.coordinator.complete("tx", NOW_MS)
    assert machine.add(machine.own) == 0
    assert machine.end(machine.own, True) == machine.future


# ---------------------------------------------------------------------- by the clock


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_the_owner_is_told_after_the_coordinator_aborted_on_timeout(version: int) -> None:
    machine = Machine(version).bring_to("Ongoing")
    coordinator, late = machine.coordinator, machine.own
    assert coordinator.abort_timed_out(NOW_MS + TIMEOUT_MS) == []
    assert coordinator.abort_timed_out(NOW_MS + TIMEOUT_MS + 1) == ["tx"]
    assert coordinator.abort_timed_out(NOW_MS + TIMEOUT_MS + 1) == []
    assert machine.metadata.identity == machine.future and machine.metadata.state.value == "PrepareAbort"
    coordinator.complete("tx", NOW_MS)
    assert machine.add(late) == 90 and machine.verify(late) == 90
    if version == 2:
        assert machine.end(late, True) == 48
        assert machine.end(late, False) == machine.future
        assert machine.init(late) == machine.future
    else:
        assert machine.end(late, True) == 90 and machine.end(late, False) == 90
        assert machine.init(late) == 90
    assert isinstance(machine.init(), ProducerIdentity)


def test_the_clock_starts_with_the_first_partition_and_not_with_the_next() -> None:
    machine = Machine(2).bring_to("Empty")
    machine.add(machine.own, ("t", 0), NOW_MS + 10)
    machine.add(machine.own, ("t", 1), NOW_MS + 20)
    assert machine.metadata.started_ms == NOW_MS + 10 and machine.metadata.partitions == {("t", 0), ("t", 1)}
    assert machine.coordinator.abort_timed_out(NOW_MS + TIMEOUT_MS + 11) == ["tx"]


@pytest.mark.parametrize(
    "state", ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"]
)
def test_an_idle_id_is_forgotten_unless_a_transaction_is_open(state: str) -> None:
    machine = Machine(2).bring_to(state)
    metadata = machine.metadata
    assert machine.coordinator.forget_idle(NOW_MS + 999, 1000) == []
    forgotten = machine.coordinator.forget_idle(NOW_MS + 1000, 1000)
    if state == "Ongoing" or state.startswith("Prepare"):
        assert forgotten == [] and machine.metadata is metadata
    else:
        assert forgotten == ["tx"] and not machine.coordinator.ids and metadata.state.value == "Dead"


# ---------------------------------------------------------------------- transaction.version 0


@pytest.mark.parametrize("request_name", ["add", "end"])
def test_a_request_of_the_second_version_wedges_the_id_on_an_old_cluster_until_the_coordinator_moves(
    request_name: str,
) -> None:
    machine = Machine(0).bring_to("Ongoing")
    own, coordinator = machine.own, machine.coordinator
    if request_name == "add":
        assert coordinator.add_partitions("tx", own, [PARTITION], NOW_MS, in_second_version=True) == 0  # is in it
        answer: IdentityAnswer = coordinator.add_partitions("tx", own, [("t", 9)], NOW_MS, in_second_version=True)
    else:
        answer = coordinator.end_and_bump("tx", own, commits=True, now_ms=NOW_MS)
    assert answer == 35 and machine.metadata.partitions == {PARTITION}
    for _ in range(2):
        assert machine.init() == 51 and machine.add(own) == 51
        assert machine.verify(own) == 0 and machine.verify(own, ("t", 9)) == 120  # looking changes nothing
        assert machine.end(own, True) == 51 and machine.end(machine.stale, True) == 90
        assert coordinator.end_and_bump("tx", own, commits=False, now_ms=NOW_MS) == 51
        assert coordinator.abort_timed_out(NOW_MS * 2) == [] and coordinator.forget_idle(NOW_MS * 2, 1) == []
    coordinator.reload("tx")
    assert machine.end(own, True) == own and machine.metadata.is_completing
