"""Effects of the broker's codes on one partition, by the fault catalogue. No loop, no broker."""

from __future__ import annotations

import pytest
from ledger_desk import DELIVERY_TIMEOUT_S, IDENTITY, OTHER_TOPIC_ID, TOPIC_ID, Desk, numbers

from aiokprod.pipeline.partition.ledger import Entry, Outcome, Reason, Settle
from aiokprod.pipeline.partition.size_limit import SHARE
from aiokprod.wire.reader import ZERO_UUID

DELIVERED, NOT, POSSIBLY = Outcome.DELIVERED, Outcome.NOT, Outcome.POSSIBLY
NOT_LEADER, TIMED_OUT, TOO_LARGE, FEW, FEW_AFTER, UNAUTHORIZED, OUT_OF_ORDER = 6, 7, 10, 19, 20, 29, 45


# ---------------------------------------------------------------------- topics
def test_a_recreated_topic_bumps_when_nothing_is_in_flight() -> None:
    """faults: T6"""
    desk = Desk()
    desk.warm()
    desk.leader(1, 0, OTHER_TOPIC_ID)  # its leader epochs start again
    assert desk.bumps == [((7, 0), False)]
    desk.grant((7, 1))
    entry = desk.send()
    assert desk.fly() == [entry]
    assert numbers([entry]) == [(1, 0, 1)]
    assert (desk.ledger.topic_id, desk.ledger.leader_epoch) == (OTHER_TOPIC_ID, 0)


def test_a_recreated_topic_takes_clean_records_and_never_ambiguous_ones() -> None:
    """faults: T6, P20"""
    desk = Desk()
    desk.warm()
    doubtful, clean = desk.send(), desk.send()
    assert desk.fly() == [doubtful, clean]
    desk.leader(2, 0, OTHER_TOPIC_ID)
    assert len(desk.chases) == 1 and not desk.bumps
    desk.answer(doubtful, TIMED_OUT)
    desk.answer(clean, 100)
    desk.returned()
    assert desk.records(POSSIBLY) == [1]
    assert desk.bumps == [((7, 0), False)]
    desk.grant((7, 1))
    desk.backoff()
    assert desk.fly() == [clean]
    assert numbers([clean]) == [(1, 0, 1)]


def test_an_id_learned_for_the_first_time_is_no_other_topic() -> None:
    """faults: T6"""
    desk = Desk(topic_id=ZERO_UUID)
    desk.warm()
    desk.leader(1, 3, TOPIC_ID)
    assert not desk.bumps
    assert desk.ledger.topic_id == TOPIC_ID
    desk.leader(2, 4, ZERO_UUID)  # a broker that tells no ids
    assert not desk.bumps
    assert desk.ledger.topic_id == TOPIC_ID
    desk.leader(2, 4, OTHER_TOPIC_ID)
    assert len(desk.bumps) == 1


# ---------------------------------------------------------------------- what is ambiguous, and for how long
@pytest.mark.parametrize("code", [NOT_LEADER, FEW, FEW_AFTER, TIMED_OUT, 3, 56])
@pytest.mark.parametrize("offset", [-1, 0, 5])
def test_a_retriable_error_with_a_base_offset_may_be_in_the_log(code: int, offset: int) -> None:
    """faults: P6, P8, P11, P12"""
    desk = Desk()
    desk.warm()
    entry = desk.send()
    desk.fly()
    desk.answer(entry, code, offset)
    desk.returned()
    desk.sleep(DELIVERY_TIMEOUT_S)
    ambiguous = offset >= 0 or code in (FEW_AFTER, TIMED_OUT)
    assert desk.told[1] == (POSSIBLY if ambiguous else NOT, None)


@pytest.mark.parametrize("last", [FEW, NOT_LEADER, 3, 17, 44, 10, None])
def test_ambiguity_stays_whatever_a_later_attempt_is_answered(last: int | None) -> None:
    """faults: P8, P11"""
    desk = Desk()
    desk.warm()
    entry = desk.send()
    desk.fly()
    desk.answer(entry, TIMED_OUT)
    desk.returned()
    desk.backoff()
    assert desk.fly() == [entry]
    if last is None:
        desk.lose(entry, written=False)
    else:
        desk.answer(entry, last)
        desk.returned()
    desk.sleep(DELIVERY_TIMEOUT_S)
    assert desk.told[1] == (POSSIBLY, None)


@pytest.mark.parametrize("written", [True, False])
def test_a_lost_connection_is_ambiguous_only_if_bytes_were_handed_over(written: bool) -> None:
    """faults: P13"""
    desk = Desk()
    desk.warm()
    entry = desk.send()
    desk.fly()
    desk.lose(entry, written=written)
    desk.sleep(DELIVERY_TIMEOUT_S)
    assert desk.told[1] == (POSSIBLY if written else NOT, None)


def test_a_batch_may_not_be_recalled_after_its_stamp_and_its_twin_before_may() -> None:
    """faults: P8, L3"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(2), desk.send(2)
    assert desk.take() is first
    assert not desk.ledger.recall(first, 0)
    assert desk.ledger.recall(second, 0)
    assert not desk.ledger.recall(second, 0)
    assert (first.count, second.count) == (2, 1)


def test_an_ok_behind_an_ambiguous_batch_acknowledges_it() -> None:
    """faults: P12"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(), desk.send()
    assert desk.fly() == [first, second]
    desk.answer(first, FEW_AFTER)
    desk.answer(second, 0, 2)
    assert desk.told[2] == (DELIVERED, 2)
    desk.returned()
    desk.backoff()
    assert desk.fly() == [first]  # sent again: the duplicate's answer brings its offset
    desk.answer(first, 0, 1)
    assert desk.told[1] == (DELIVERED, 1)


def test_a_proved_batch_is_delivered_without_an_offset_at_its_deadline() -> None:
    """faults: P12, ledger R3.2"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(), desk.send()
    assert desk.fly() == [first, second]
    desk.answer(first, FEW_AFTER)
    desk.answer(second, 0, 2)
    desk.returned()
    desk.sleep(DELIVERY_TIMEOUT_S)
    assert desk.told[1] == (DELIVERED, None)


def test_an_ok_after_a_refusal_in_the_same_round_proves_nothing() -> None:
    """ledger R3.1"""
    desk = Desk()
    desk.warm()
    first, second, third = desk.send(), desk.send(), desk.send()
    assert desk.fly() == [first, second, third]
    desk.answer(first, TIMED_OUT)
    desk.answer(second, NOT_LEADER)
    desk.answer(third, 0, 3)
    desk.returned()
    desk.sleep(DELIVERY_TIMEOUT_S)
    assert desk.told[1] == (POSSIBLY, None)
    assert desk.told[2][0] is NOT  # overtaken: never sent again


# ---------------------------------------------------------------------- refused for good
def test_a_refused_batch_leaves_and_those_behind_are_stamped_again_under_the_same_identity() -> None:
    """faults: P10, P14, P15"""
    desk = Desk()
    desk.warm()
    refused, second, third = desk.send(3), desk.send(2), desk.send()
    assert desk.fly() == [refused, second, third]
    desk.answer(refused, 44)
    desk.answer(second, OUT_OF_ORDER)
    desk.answer(third, OUT_OF_ORDER)
    desk.returned()
    assert desk.records(NOT) == [1, 2, 3]
    assert desk.fly() == [second]
    desk.answer(second, 0, 1)
    assert desk.fly() == [third]
    assert numbers([second, third]) == [(0, 1, 2), (0, 3, 1)]
    assert not desk.bumps


def test_a_refused_batch_with_an_ambiguous_one_behind_bumps() -> None:
    """faults: P14, ledger R4.3"""
    desk = Desk()
    desk.warm()
    refused, doubtful, clean = desk.send(), desk.send(), desk.send()
    assert desk.fly() == [refused, doubtful, clean]
    desk.answer(refused, 44)
    desk.answer(doubtful, TIMED_OUT)
    desk.answer(clean, OUT_OF_ORDER)
    desk.returned()
    assert desk.told[1] == (NOT, None)
    assert desk.told[2] == (POSSIBLY, None)
    assert desk.bumps == [((7, 0), False)]
    desk.grant((7, 1))
    assert desk.fly() == [clean]


@pytest.mark.parametrize("code", [-1, 22, 104, 30_000, -30_000])
def test_an_unknown_code_fails_possibly_without_a_bump_and_a_later_45_bumps(code: int) -> None:
    """faults: P2"""
    desk = Desk()
    desk.warm()
    entry = desk.send()
    desk.fly()
    desk.answer(entry, code)
    desk.returned()
    assert desk.told[1] == (POSSIBLY, None)
    assert not desk.bumps
    later = desk.send()
    desk.backoff()
    assert desk.fly() == [later]
    assert numbers([later]) == [(0, 2, 1)]
    desk.answer(later, OUT_OF_ORDER)
    desk.returned()
    assert len(desk.bumps) == 1


def refused_for_its_size(desk: Desk, *counts: int) -> None:
    """Refuse the first of these batches as too large, and the others, which are behind it, as out of order."""
    entries = [desk.send(count) for count in counts]
    assert desk.fly() == entries
    for at, entry in enumerate(entries):
        desk.answer(entry, OUT_OF_ORDER if at else TOO_LARGE)
    desk.returned()


def test_a_batch_too_large_goes_again_in_parts_with_its_own_numbers() -> None:
    """faults: P9, I11"""
    desk = Desk()
    desk.warm()
    refused_for_its_size(desk, 2 * SHARE, 1)
    (front,) = desk.fly()
    assert numbers(list(desk.ledger.entries)) == [(0, 1, 2), (0, 3, 2 * SHARE - 2), (0, 2 * SHARE + 1, 1)]
    desk.answer(front, 0, 1)
    offset = 3
    while desk.ledger.entries:
        for entry in desk.fly():
            assert entry.first_sequence == offset
            desk.answer(entry, 0, offset)
            offset += entry.count
    assert desk.offsets() == list(range(2 * SHARE + 2))
    assert not desk.bumps


def test_parts_double_while_they_are_accepted_and_nothing_goes_behind_a_larger_one() -> None:
    """faults: P9"""
    desk = Desk()
    desk.warm()
    refused_for_its_size(desk, 8 * SHARE, 8 * SHARE)
    sizes, offset, limit = list[int](), 1, 20
    while desk.ledger.entries:
        flying = desk.fly()
        sizes.append(flying[0].count)
        assert len(flying) == 1 or flying[0].count <= max(sizes[:-1])
        refused = flying[0].count > limit
        for entry in flying:
            if refused:
                desk.answer(entry, TOO_LARGE)
            else:
                desk.answer(entry, 0, offset)
                offset += entry.count
        if refused:
            desk.returned()
    assert sizes[:2] == [8, 16]
    assert max(sizes) == 32 and sizes.count(32) == 1
    assert {entry.attempts for entry in desk.settled[1:]} == {2, 3}
    assert desk.offsets() == list(range(16 * SHARE + 1))


def test_queued_batches_go_in_parts_without_being_refused() -> None:
    """faults: P9"""
    desk = Desk()
    desk.warm()
    refused_for_its_size(desk, 2 * SHARE)
    desk.send(2 * SHARE)
    while desk.ledger.entries:
        for entry in desk.fly():
            assert entry.count <= SHARE
            desk.answer(entry, 0, entry.first_sequence)
    assert max(settle.attempts for settle in desk.settled[-2:]) == 1
    assert desk.offsets() == list(range(4 * SHARE + 1))


def test_a_record_of_a_part_that_was_not_sent_can_be_recalled() -> None:
    """faults: P9"""
    desk = Desk()
    desk.warm()
    refused_for_its_size(desk, 2 * SHARE)
    queued = desk.send(2 * SHARE)
    batch = queued.batch
    batch.entry = queued
    while batch.entry is queued:
        for entry in desk.fly():
            desk.answer(entry, 0, entry.first_sequence)
    rest = batch.entry
    assert isinstance(rest, Entry) and not rest.is_sent
    assert not desk.ledger.recall(rest, 0), "it was sent with the part in front"
    assert desk.ledger.recall(rest, 2 * SHARE - 1)
    assert rest.ranges[-1][1] == 2 * SHARE - 1


def test_a_partition_in_doubt_asks_all_parts_though_they_are_more_than_the_window() -> None:
    """faults: I3, P9"""
    desk = Desk(window=2)
    desk.warm()
    doubtful, clean = desk.send(2), desk.send(2)
    assert desk.fly() == [doubtful, clean]
    desk.answer(doubtful, TIMED_OUT)
    desk.answer(clean, FEW)
    desk.returned()
    desk.backoff()
    desk.ledger.size_limit.refused(64, 0.0)
    assert desk.fly() == [doubtful], "what is ambiguous is not cut"
    desk.answer(doubtful, OUT_OF_ORDER)
    parts = desk.fly()
    assert [part.count for part in parts] == [1, 1]
    for part in parts:
        assert not desk.bumps
        desk.answer(part, OUT_OF_ORDER)
    assert desk.records(POSSIBLY) == [1, 2]
    assert len(desk.bumps) == 1


@pytest.mark.parametrize("window", [1, 2, 5])
def test_acknowledged_batches_that_prove_nothing_take_no_place_of_what_has_to_be_asked(window: int) -> None:
    """faults: I3, P9"""
    desk = Desk(window=window)
    desk.warm()
    refused_for_its_size(desk, 2 * SHARE)
    doubtful = desk.fly()[0]
    desk.lose(doubtful)
    desk.backoff()
    assert desk.fly() == [doubtful]
    desk.answer(doubtful, OUT_OF_ORDER)
    refused, *others = desk.fly()
    desk.answer(refused, UNAUTHORIZED)
    for other in others:
        desk.answer(other, OUT_OF_ORDER)
    acknowledged = 0
    while flying := desk.fly():  # of a broker that has lost its state, so it takes any number
        for entry in flying:
            desk.answer(entry, 0, 100 + acknowledged)
            acknowledged += entry.count
    assert acknowledged > 5 * window
    assert not desk.ledger.entries
    assert len(desk.told) == 2 * SHARE + 1


def test_a_first_part_that_was_not_sent_gives_its_records_back() -> None:
    """faults: P9"""
    desk = Desk()
    desk.warm()
    desk.ledger.size_limit.refused(10 * SHARE, 0.0)
    entry = desk.send(6)
    batch = entry.batch
    batch.entry = entry
    part = desk.ledger.candidate(desk.now, desk.now_ms)
    assert part is not None and part.count == 1 and not part.is_sent
    smaller = desk.ledger.candidate(desk.now, desk.now_ms)
    assert smaller is part, "it is cut once"
    rest = batch.entry
    assert isinstance(rest, Entry) and not rest.has(0)
    assert desk.ledger.recall(rest, 0)
    assert not desk.ledger.recall(rest, 0)
    assert part.is_dead and list(desk.ledger.entries) == [rest]
    assert desk.ledger.recall(rest, 1), "the rest has it"
    stamped = desk.take()
    assert stamped is not None and stamped.ranges == [(2, 3)]
    rest = batch.entry
    assert isinstance(rest, Entry) and not rest.is_sent
    assert not desk.ledger.recall(rest, 2), "stamped is as good as sent"


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_refusals_for_the_size_use_up_no_retries(retries: int) -> None:
    """faults: P9"""
    desk = Desk(retries=retries)
    desk.warm()
    refused_for_its_size(desk, 8 * SHARE)
    offset = 1
    while desk.ledger.entries:
        for entry in desk.fly():
            if entry.count > 2:
                desk.answer(entry, TOO_LARGE)
                desk.returned()
            else:
                desk.answer(entry, 0, offset)
                offset += entry.count
    assert desk.offsets() == list(range(8 * SHARE + 1))


@pytest.mark.parametrize("retries", [0, 1, 3])
def test_parts_fail_after_as_many_retriable_errors_as_the_whole_would(retries: int) -> None:
    """faults: P9"""
    desk = Desk(retries=retries)
    desk.warm()
    refused_for_its_size(desk, 2 * SHARE)
    attempts = 0
    while NOT not in {outcome for outcome, _ in desk.told.values()}:
        part = desk.fly()[0]
        assert part.first_sequence == 1
        attempts += 1
        if attempts % 2:
            desk.answer(part, FEW)
            desk.returned()
        else:
            desk.lose(part, written=False)
        desk.backoff()
    assert attempts == retries + 1


def test_one_record_too_large_for_the_topic_is_found_and_fails_alone() -> None:
    """faults: I11, P10"""
    desk = Desk()
    desk.warm()
    desk.send(64)
    rounds = 0
    offset = 1
    while desk.ledger.entries:
        taken = desk.take()
        assert taken is not None
        if any(first <= 41 < last for first, last in taken.ranges):
            rounds += 1
            desk.answer(taken, TOO_LARGE)
            desk.returned()
        else:
            desk.answer(taken, 0, offset)
            offset += taken.count
    assert rounds == 4  # the whole, a part of four, one of two, and the record alone
    assert desk.records(NOT) == [42]
    assert desk.offsets() == list(range(64))
    assert not desk.bumps


@pytest.mark.parametrize("code", [32, 87])
@pytest.mark.parametrize("named", [(0,), (1, 3), (0, 1, 2), (3,), (-1, 2, 4, 99)])
def test_records_named_by_the_broker_leave_and_the_rest_is_renumbered(named: tuple[int, ...], code: int) -> None:
    """faults: P14, P24. Positions that the batch does not have name nothing."""
    desk = Desk()
    desk.warm()
    mixed = desk.send(4)
    desk.fly()
    desk.answer(mixed, code, named=named)
    desk.returned()
    bad = [position for position in named if 0 <= position < 4]
    assert desk.records(NOT) == [1 + position for position in bad]
    assert desk.fly() == [mixed]
    assert numbers([mixed]) == [(0, 1, 4 - len(bad))]
    desk.answer(mixed, 0, 1)
    assert desk.offsets() == list(range(5 - len(bad)))


@pytest.mark.parametrize("code", [32, 87])
@pytest.mark.parametrize("named", [(), (0, 1, 2, 3), (4,)])
def test_names_of_no_record_or_of_all_refuse_the_batch(named: tuple[int, ...], code: int) -> None:
    """faults: P24"""
    desk = Desk()
    desk.warm()
    mixed = desk.send(4)
    desk.fly()
    desk.answer(mixed, code, named=named)
    desk.returned()
    assert desk.records(NOT) == [1, 2, 3, 4]
    assert not desk.bumps


# ---------------------------------------------------------------------- without idempotence, and in a transaction
def test_without_idempotence_one_batch_is_in_flight_and_ambiguous_ones_go_again() -> None:
    """faults: P27, ledger R9"""
    desk = Desk(idempotent=False, identity=None)
    first, second = desk.send(), desk.send()
    assert desk.fly() == [first]
    desk.lose(first)
    assert desk.fly() == []
    desk.backoff()
    assert desk.fly() == [first]
    desk.answer(first, 0, 0)
    assert desk.fly() == [second]
    assert not first.is_stamped and not second.is_stamped
    desk.answer(second, OUT_OF_ORDER)
    desk.returned()
    assert not desk.bumps


@pytest.mark.parametrize("code", [OUT_OF_ORDER, 47, 49, 59, 44, -1])
def test_a_transaction_fails_as_a_whole_and_asks_for_its_abort(code: int) -> None:
    """faults: I13, I15, X11"""
    desk = Desk(transactional=True)
    desk.warm()
    first, second = desk.send(), desk.send()
    desk.fly()
    desk.answer(first, code)
    desk.answer(second, OUT_OF_ORDER)
    desk.returned()
    assert desk.aborts == 1
    assert not desk.bumps
    assert desk.records(NOT, POSSIBLY) == [1, 2]
    assert desk.fly() == []
    assert not desk.ledger.entries


def test_in_a_transaction_the_refused_batch_has_the_reason_and_the_others_are_aborted() -> None:
    """faults: X11, ledger R10"""
    desk = Desk(transactional=True)
    desk.warm()
    first, second = desk.send(), desk.send()
    desk.fly()
    desk.answer(first, 44)
    desk.answer(second, OUT_OF_ORDER)
    desk.returned()
    assert [(settle.outcome, settle.why) for settle in desk.settled[1:]] == [
        (NOT, Reason.REJECTED),
        (NOT, Reason.ABORT),
    ]
    assert desk.aborts == 1


def test_in_a_transaction_records_refused_by_name_have_the_reason() -> None:
    """faults: X11, ledger R4.1, R10"""
    desk = Desk(transactional=True)
    batch = desk.send(4)
    desk.fly()
    desk.answer(batch, 87, named=(1, 3))
    desk.returned()
    rejected, aborted = desk.settled
    assert (rejected.why, rejected.ranges, rejected.named) == (Reason.REJECTED, [(1, 2), (3, 4)], (1, 3))
    assert (aborted.why, aborted.ranges) == (Reason.ABORT, [(0, 1), (2, 3)])


def test_in_a_transaction_a_batch_in_doubt_that_is_refused_is_possibly_written() -> None:
    """faults: X11, ledger R4.6, R10"""
    desk = Desk(transactional=True)
    batch = desk.send()
    desk.fly()
    desk.lose(batch)
    desk.backoff()
    desk.fly()
    desk.answer(batch, 44)
    desk.returned()
    assert [(settle.outcome, settle.why) for settle in desk.settled] == [(POSSIBLY, Reason.FATAL)]


def test_in_a_transaction_a_batch_that_is_too_large_goes_in_parts() -> None:
    """faults: I10, ledger R4.4"""
    desk = Desk(transactional=True)
    batch = desk.send(64)
    desk.fly()
    desk.answer(batch, 10)
    desk.returned()
    parts = desk.fly()
    assert parts
    assert not desk.aborts
    offset = 0
    while parts:
        for part in parts:
            desk.answer(part, 0, offset)
            offset += part.count
        parts = desk.fly()
    assert offset == 64


def test_numbers_go_on_under_the_identity_of_the_transaction_before() -> None:
    """broker: 10.3b, ledger R10"""
    desk = Desk(transactional=True)
    desk.warm()
    desk.ledger.enrol(IDENTITY)
    entry = desk.send()
    assert desk.fly() == [entry]
    assert (entry.identity, entry.first_sequence) == (IDENTITY, 1)


@pytest.mark.parametrize("identity", [(IDENTITY[0], IDENTITY[1] + 1), (IDENTITY[0] + 1, 0)])
def test_numbers_begin_at_0_under_another_identity(identity: tuple[int, int]) -> None:
    """broker: 1.7, 10.3, ledger R10"""
    desk = Desk(transactional=True)
    desk.warm()
    desk.ledger.enrol(identity)
    first, second = desk.send(), desk.send()
    desk.fly()
    assert (first.identity, first.first_sequence) == (identity, 0)
    desk.answer(first, 0, 1)
    desk.fly()
    assert (second.identity, second.first_sequence) == (identity, 1)


def test_the_next_epoch_of_a_producer_that_the_leader_knows_opens_with_several_batches() -> None:
    """broker: 1.4 - no other first sequence than 0 is taken; ledger R5, R10"""
    desk = Desk(transactional=True)
    desk.warm()
    desk.ledger.enrol((IDENTITY[0], IDENTITY[1] + 1))
    three = [desk.send() for _ in range(3)]
    assert desk.fly() == three
    # The first one is refused for now: so are the others, which change nothing, and all are sent again, in order.
    desk.answer(three[0], FEW)
    for entry in three[1:]:
        desk.answer(entry, OUT_OF_ORDER)
    desk.returned()
    desk.backoff()
    assert desk.fly() == three[:1], "alone: the round has shown nothing yet"
    desk.answer(three[0], 0, 1)
    assert desk.fly() == three[1:]
    assert [entry.first_sequence for entry in three] == [0, 1, 2]
    assert desk.aborts == 0


@pytest.mark.parametrize("what", ["another producer id", "a second later", "nothing proved", "abandoned"])
def test_a_transaction_opens_with_one_batch_where_the_leader_may_not_know_the_producer(what: str) -> None:
    """faults: I6, ledger R5.1, R5.2"""
    desk = Desk(transactional=True)
    if what != "nothing proved":
        desk.warm()
    if what == "a second later":
        desk.sleep(1.001)
    if what == "abandoned":
        desk.send()
        desk.fly()
        desk.ledger.abandon(desk.now)
    desk.ledger.enrol((8, 0) if what == "another producer id" else (IDENTITY[0], IDENTITY[1] + 1))
    first = desk.send()
    desk.send()
    assert desk.fly() == [first]


def test_an_abandoned_ledger_has_failed_everything_and_ignores_late_answers() -> None:
    """faults: X12, ledger R10"""
    desk = Desk(transactional=True)
    desk.warm()
    flying = desk.send()
    desk.send()
    assert desk.take() is flying
    actions, due = desk.ledger.abandon(desk.now)
    assert due == [flying]
    assert [(a.outcome, a.why) for a in actions if isinstance(a, Settle)] == [
        (POSSIBLY, Reason.ABORT), (NOT, Reason.ABORT)
    ]  # fmt: skip
    assert desk.ledger.identity is None, "numbers were given out: none may follow them"
    desk.answer(flying, 0, 5)
    assert not flying.is_flying
    assert len(desk.settled) == 1, "of the batch that was delivered before"
    desk.ledger.enrol((IDENTITY[0], IDENTITY[1] + 1))
    later = desk.send()
    assert desk.fly() == [later]
    assert later.first_sequence == 0


def test_an_abandoned_ledger_that_gave_out_no_number_goes_on_behind_its_last() -> None:
    """ledger R10"""
    desk = Desk(transactional=True)
    desk.warm()
    desk.send()
    _, due = desk.ledger.abandon(desk.now)
    assert due == []
    assert desk.ledger.identity == IDENTITY
    desk.ledger.enrol(IDENTITY)
    later = desk.send()
    assert desk.fly() == [later]
    assert later.first_sequence == 1
