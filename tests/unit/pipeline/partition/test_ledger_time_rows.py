"""Deadlines, old timestamps and late answers of one partition, by the fault catalogue. No loop, no broker."""

from __future__ import annotations

from ledger_desk import DELIVERY_TIMEOUT_S, NOW_MS, Desk, numbers

from aiokprod.pipeline.partition.ledger import AGE_MS, Outcome

DELIVERED, NOT, POSSIBLY = Outcome.DELIVERED, Outcome.NOT, Outcome.POSSIBLY
NOT_LEADER, TIMED_OUT, TOO_LARGE, FEW, FEW_AFTER, OUT_OF_ORDER = 6, 7, 10, 19, 20, 45


def test_an_expired_head_fails_possibly_and_the_flow_goes_on_behind_it() -> None:
    """faults: I8"""
    desk = Desk()
    desk.warm()
    head = desk.send()
    assert desk.fly() == [head]
    desk.sleep(DELIVERY_TIMEOUT_S - 0.5)
    behind = [desk.send() for _ in range(3)]
    desk.ledger.candidate(desk.now, desk.now_ms)
    desk.sleep(0.5)
    assert desk.told[1] == (POSSIBLY, None)
    assert desk.records(DELIVERED, NOT) == [0]
    assert not desk.chases and not desk.bumps
    desk.answer(head, 0, 1)  # its answer is in: ignored, and it proves that the broker has state
    assert desk.fly() == behind
    assert [entry.first_sequence for entry in behind] == [2, 3, 4]
    for offset, entry in enumerate(behind, start=2):
        desk.answer(entry, 0, offset)
    assert desk.records(DELIVERED) == [0, 2, 3, 4]
    assert not desk.bumps and not desk.chases


def test_a_batch_that_waited_longer_than_the_one_in_front_is_due_first() -> None:
    desk = Desk()
    desk.sleep(100.0)
    desk.send()
    desk.send(waited_s=90.0)
    desk.send(waited_s=20.0)
    assert desk.ledger.next_deadline() == 10.0 + DELIVERY_TIMEOUT_S
    desk.sleep(DELIVERY_TIMEOUT_S - 90.0)
    assert desk.told == {1: (NOT, None)}
    desk.sleep(70.0)
    assert desk.told == {1: (NOT, None), 2: (NOT, None)}
    assert desk.ledger.next_deadline() == 100.0 + DELIVERY_TIMEOUT_S
    desk.sleep(20.0)
    assert desk.records(NOT) == [0, 1, 2]
    assert desk.ledger.next_deadline() is None


def test_a_batch_that_expires_behind_one_that_is_sent_again_leaves_no_hole_in_the_numbers() -> None:
    desk = Desk()
    desk.sleep(100.0)
    desk.warm()
    head, late, last = desk.send(2), desk.send(waited_s=90.0), desk.send()
    assert desk.fly() == [head, late, last]
    assert [entry.first_sequence for entry in (head, late, last)] == [1, 3, 4]
    for entry in (head, late, last):
        desk.answer(entry, NOT_LEADER)
    desk.sleep(DELIVERY_TIMEOUT_S - 90.0)
    assert desk.told[3] == (NOT, None)
    desk.returned()
    desk.backoff()
    assert desk.fly() == [head]  # the guard is up again
    desk.answer(head, 0, 1)
    assert desk.fly() == [last]
    assert (head.first_sequence, last.first_sequence) == (1, 3)
    desk.answer(last, 0, 3)
    assert desk.records(DELIVERED) == [0, 1, 2, 4]
    assert not desk.bumps


# ---------------------------------------------------------------------- records of two ages (ledger: R8.6)
HALF_S = DELIVERY_TIMEOUT_S / 2


def test_records_with_half_of_their_time_left_go_in_a_batch_of_their_own_and_outlive_the_old_ones() -> None:
    desk = Desk()
    desk.sleep(DELIVERY_TIMEOUT_S)
    desk.warm()
    desk.send_aged(DELIVERY_TIMEOUT_S - 1, HALF_S + 5, HALF_S, HALF_S - 5, 1, 0)
    old, young = desk.fly()
    assert (old.count, young.count) == (3, 3)
    assert (old.first_sequence, young.first_sequence) == (1, 4)
    for entry in (old, young):
        desk.answer(entry, FEW)
    desk.sleep(1.0)
    assert desk.records(NOT) == [1, 2, 3], "as one: it was sent"
    desk.returned()
    desk.backoff()
    assert desk.fly() == [young]
    desk.answer(young, 0, 1)
    assert desk.records(DELIVERED) == [0, 4, 5, 6] and not desk.bumps


def test_a_batch_of_one_age_goes_whole_however_old_it_is() -> None:
    for waited_s in (0, HALF_S - 1, HALF_S, DELIVERY_TIMEOUT_S - 1):
        desk = Desk()
        desk.sleep(DELIVERY_TIMEOUT_S)
        desk.send_aged(waited_s, waited_s, waited_s)
        (entry,) = desk.fly()
        assert entry.count == 3


def test_a_batch_that_was_sent_is_not_cut_by_age() -> None:
    desk = Desk()
    desk.sleep(DELIVERY_TIMEOUT_S)
    whole = desk.send_aged(HALF_S - 1, 0)
    assert desk.fly() == [whole]
    desk.answer(whole, FEW)
    desk.sleep(1.0)
    desk.returned()
    desk.backoff()
    assert desk.fly() == [whole] and whole.count == 2


def test_a_batch_is_cut_by_age_where_records_have_left_it() -> None:
    desk = Desk()
    desk.sleep(DELIVERY_TIMEOUT_S)
    desk.warm()
    entry = desk.send_aged(HALF_S + 3, HALF_S + 2, HALF_S + 1, 3, 2, 1)
    for index in (1, 4):
        assert desk.ledger.recall(entry, index)
    old, young = desk.fly()
    assert (old.ranges, young.ranges) == ([(0, 1), (2, 3)], [(3, 4), (5, 6)])
    assert desk.ledger.entries[0] is old and entry not in desk.ledger.entries


def test_a_part_by_age_that_is_too_large_goes_in_parts_by_size() -> None:
    desk = Desk()
    desk.sleep(DELIVERY_TIMEOUT_S)
    desk.warm()
    desk.ledger.size_limit.batch_bytes = 20  # two records
    desk.send_aged(HALF_S + 3, HALF_S + 2, HALF_S + 1, 3, 2, 1)
    taken = []
    for offset in (1, 3, 4, 6):
        entry = desk.take()
        assert entry is not None
        taken += entry.ranges
        desk.answer(entry, 0, offset)
    assert taken == [(0, 2), (2, 3), (3, 5), (5, 6)]


def test_four_behind_an_expired_head_are_delivered_without_a_drain() -> None:
    """faults: I8"""
    desk = Desk()
    desk.warm()
    head = desk.send()
    desk.sleep(0.2)
    behind = [desk.send() for _ in range(4)]
    assert desk.fly() == [head, *behind]
    desk.sleep(DELIVERY_TIMEOUT_S - 0.2)
    assert desk.records(POSSIBLY) == [1]
    assert head in desk.ledger.entries  # keeps its place until its answer is in
    for offset, entry in enumerate(behind, start=2):
        desk.answer(entry, 0, offset)
    assert desk.records(DELIVERED) == [0, 2, 3, 4, 5]
    assert not desk.chases and not desk.bumps


def test_45_after_an_expired_head_that_was_not_written_bumps() -> None:
    """faults: I8, ledger R2.3"""
    desk = Desk()
    desk.warm()
    head = desk.send()
    assert desk.fly() == [head]
    desk.sleep(DELIVERY_TIMEOUT_S)
    next_one = desk.send()
    desk.lose(head)
    desk.backoff()
    assert desk.fly() == [next_one]
    assert numbers([next_one]) == [(0, 2, 1)]  # the numbers of the lost one stay used
    desk.answer(next_one, OUT_OF_ORDER)
    desk.returned()
    assert desk.bumps == [((7, 0), False)]
    desk.grant((7, 1))
    desk.backoff()
    assert desk.fly() == [next_one]
    desk.answer(next_one, 0, 1)
    assert desk.told[2] == (DELIVERED, 1)


def test_when_all_five_expire_they_never_go_out_again_and_the_next_record_arrives() -> None:
    """faults: I9"""
    desk = Desk()
    desk.warm()
    five = [desk.send() for _ in range(5)]
    assert desk.fly() == five
    desk.sleep(DELIVERY_TIMEOUT_S)
    assert desk.records(POSSIBLY) == [1, 2, 3, 4, 5]
    new = desk.send()
    desk.lose(*five)
    desk.backoff()
    assert desk.fly() == [new]
    desk.answer(new, OUT_OF_ORDER)
    desk.returned()
    desk.grant((7, 1))
    desk.backoff()
    assert desk.fly() == [new]
    assert numbers([new]) == [(1, 0, 1)]
    desk.answer(new, 0, 1)
    assert desk.told[6] == (DELIVERED, 1)
    assert not desk.ledger.entries


def test_a_batch_expired_while_certainly_unwritten_frees_its_numbers() -> None:
    """faults: I8, ledger R8.2"""
    desk = Desk()
    desk.warm()
    head = desk.send()
    desk.sleep(0.2)
    behind = desk.send()
    assert desk.fly() == [head, behind]
    desk.answer(head, FEW)
    desk.answer(behind, OUT_OF_ORDER)
    desk.returned()
    desk.sleep(DELIVERY_TIMEOUT_S - 0.2)
    assert desk.told[1] == (NOT, None)
    assert desk.fly() == [behind]
    assert numbers([behind]) == [(0, 1, 1)]  # closed up, same identity
    assert not desk.bumps


def test_records_of_12_hours_ago_travel_alone() -> None:
    """faults: I20"""
    desk = Desk()
    desk.warm()
    before, old, after = desk.send(), desk.send(timestamp_ms=NOW_MS - AGE_MS), desk.send()
    assert desk.fly() == [before]  # the old one waits for what is before it
    desk.answer(before, 0, 1)
    assert desk.fly() == [old]  # and nothing goes behind it
    desk.answer(old, 0, 2)
    assert desk.fly() == [after]  # alone: what was acknowledged last is old (R5.3)
    desk.answer(after, 0, 3)
    young = [desk.send(timestamp_ms=NOW_MS - AGE_MS + 1), desk.send()]
    assert desk.fly() == young


def test_old_records_of_unknown_fate_are_not_sent_again() -> None:
    """faults: I20, ledger R5.4"""
    desk = Desk()
    desk.warm()
    old, after = desk.send(timestamp_ms=NOW_MS - AGE_MS), desk.send()
    assert desk.fly() == [old]
    desk.lose(old)
    assert desk.told[1] == (POSSIBLY, None)
    desk.backoff()
    assert desk.fly() == [after]


def test_old_records_refused_for_certain_are_sent_again() -> None:
    """faults: I20"""
    desk = Desk()
    desk.warm()
    old = desk.send(timestamp_ms=NOW_MS - AGE_MS)
    desk.fly()
    desk.answer(old, FEW)
    desk.returned()
    desk.backoff()
    assert desk.fly() == [old]


def test_a_topic_that_dates_its_records_itself_has_no_old_ones() -> None:
    """faults: I20, ledger R5.3"""
    desk = Desk()
    desk.ledger.guard.is_log_append_time = True
    desk.warm()
    three = [desk.send(timestamp_ms=NOW_MS - AGE_MS) for _ in range(3)]
    assert desk.fly() == three


def test_a_second_answer_to_one_attempt_changes_nothing() -> None:
    """faults: I24"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(), desk.send()
    assert desk.fly() == [first, second]
    desk.answer(second, 0, 2)
    desk.answer(second, OUT_OF_ORDER)
    desk.answer(second, 0, 99)
    assert not desk.chases
    desk.answer(first, 0, 1)
    desk.answer(first, OUT_OF_ORDER)
    desk.answer(second, 0, 2)
    assert desk.offsets() == [0, 1, 2]
    assert not desk.bumps and not desk.chases and not desk.ledger.entries


def test_the_answer_to_an_expired_batch_tells_no_caller_anything() -> None:
    """faults: I24"""
    desk = Desk()
    desk.warm()
    entry = desk.send()
    desk.fly()
    desk.sleep(DELIVERY_TIMEOUT_S)
    assert desk.told[1] == (POSSIBLY, None)
    desk.answer(entry, 0, 1)
    desk.answer(entry, 0, 1)
    assert desk.told[1] == (POSSIBLY, None)
    assert not desk.ledger.entries and not desk.bumps


# ---------------------------------------------------------------------- closing
def test_a_purge_tells_each_record_what_is_known_of_it() -> None:
    """faults: L11, M5"""
    desk = Desk()
    desk.warm()
    flying = [desk.send(), desk.send()]
    assert desk.fly() == flying
    desk.send(3)
    desk.purge()
    assert desk.records(POSSIBLY) == [1, 2]
    assert desk.records(NOT) == [3, 4, 5]
    desk.answer(flying[0], 0, 1)
    desk.lose(flying[1])
    assert desk.fly() == []
    assert len(desk.told) == 6


def test_a_purge_in_parts_ends_the_oldest_first_and_nothing_is_sent_in_between() -> None:
    desk = Desk()
    desk.warm()
    flying = [desk.send(), desk.send()]
    assert desk.fly() == flying
    for _ in range(5):
        desk.send()
    ledger = desk.ledger
    desk._keep(ledger.purge(desk.now, desk.now_ms, 3))
    assert (desk.records(POSSIBLY), desk.records(NOT)) == ([1, 2], [3])
    assert ledger.is_cut and desk.fly() == []
    later = desk.send()  # after the purge began: it is not meant
    desk.answer(flying[0], 0, 1)
    desk.answer(flying[1], 0, 2)
    assert desk.fly() == []
    desk._keep(ledger.purge_on(desk.now, desk.now_ms, 3))
    assert desk.records(NOT) == [3, 4, 5, 6] and ledger.is_cut
    desk._keep(ledger.purge_on(desk.now, desk.now_ms, 3))
    assert desk.records(NOT) == [3, 4, 5, 6, 7] and not ledger.is_cut
    assert desk.fly() == [later]


def test_an_expiry_in_parts_gives_the_verdicts_of_one_as_a_whole() -> None:
    """A batch that is due and has not been expired yet is not sent: it would be POSSIBLY, and is certainly NOT there."""
    whole, parts = Desk(), Desk()
    for desk in (whole, parts):
        desk.warm()
        flying = [desk.send(2), desk.send()]
        assert desk.fly() == flying
        for _ in range(4):
            desk.send(2)
        desk.now += DELIVERY_TIMEOUT_S / 2
        desk.send()
        desk.now += DELIVERY_TIMEOUT_S / 2 + 0.1
    whole._keep(whole.ledger.tick(whole.now, whole.now_ms))
    turns = 0
    while not turns or parts.ledger.is_cut:
        parts._keep(parts.ledger.tick(parts.now, parts.now_ms, 2))
        turns += 1
        if parts.ledger.is_cut:
            assert parts.fly() == []
    assert turns == 3
    assert parts.told == whole.told and len(parts.told) == 12
    assert [settle.outcome for settle in parts.settled] == [settle.outcome for settle in whole.settled]


def test_an_expiry_in_parts_whose_rest_was_answered_meanwhile_is_over_at_the_next_look() -> None:
    desk = Desk()
    desk.warm()
    flying = [desk.send(), desk.send()]
    assert desk.fly() == flying
    desk.now += DELIVERY_TIMEOUT_S + 0.1
    desk._keep(desk.ledger.tick(desk.now, desk.now_ms, 1))
    assert desk.ledger.is_cut
    desk.answer(flying[0], 0, 1)
    desk.answer(flying[1], 0, 2)
    assert desk.records(Outcome.DELIVERED) == [0, 2]
    desk._keep(desk.ledger.tick(desk.now, desk.now_ms, 1))
    assert not desk.ledger.is_cut
    later = desk.send()
    assert desk.fly() == [later]
