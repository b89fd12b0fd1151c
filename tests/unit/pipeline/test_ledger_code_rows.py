"""What the broker's codes do to one partition, by the fault catalogue. No loop, no broker."""

from __future__ import annotations

import pytest
from ledger_desk import DELIVERY_TIMEOUT_S, OTHER_TOPIC_ID, TOPIC_ID, Desk, numbers

from aiokprod.pipeline.ledger import NO_TOPIC_ID, Outcome

DELIVERED, NOT, POSSIBLY = Outcome.DELIVERED, Outcome.NOT, Outcome.POSSIBLY
NOT_LEADER, TIMED_OUT, TOO_LARGE, FEW, FEW_AFTER, OUT_OF_ORDER = 6, 7, 10, 19, 20, 45


# ---------------------------------------------------------------------- topics
def test_a_recreated_topic_bumps_when_nothing_is_in_flight() -> None:
    """faults: T6"""
    desk = Desk()
    desk.warm()
    desk.leader(1, 0, OTHER_TOPIC_ID)  # its leader epochs start anew
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
    desk = Desk(topic_id=NO_TOPIC_ID)
    desk.warm()
    desk.leader(1, 3, TOPIC_ID)
    assert not desk.bumps
    assert desk.ledger.topic_id == TOPIC_ID
    desk.leader(2, 4, NO_TOPIC_ID)  # a broker that tells no ids
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
def test_a_refused_batch_leaves_and_those_behind_are_stamped_anew_under_the_same_identity() -> None:
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


def test_a_batch_too_large_is_halved_with_its_own_numbers() -> None:
    """faults: P9, I11"""
    desk = Desk()
    desk.warm()
    large, behind = desk.send(5), desk.send()
    assert desk.fly() == [large, behind]
    desk.answer(large, TOO_LARGE)
    desk.answer(behind, OUT_OF_ORDER)
    desk.returned()
    (front,) = desk.fly()
    desk.answer(front, 0, 1)
    back = desk.fly()
    assert numbers([front, *back]) == [(0, 1, 2), (0, 3, 3), (0, 6, 1)]
    desk.answer(back[0], 0, 3)
    desk.answer(back[1], 0, 6)
    assert desk.offsets() == list(range(7))


def test_one_record_too_large_for_the_topic_is_found_by_halving_and_fails_alone() -> None:
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
    assert rounds == 7  # log2(64) halvings, and the one of the record alone
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
