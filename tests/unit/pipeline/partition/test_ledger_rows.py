"""Identities, sequences and leaders of one partition, by the fault catalogue. No loop, no broker."""

from __future__ import annotations

import pytest
from ledger_desk import Desk, numbers

from aiokprod.errors import RecordRecalledError
from aiokprod.pipeline.partition.batch import BatchOwner, ProducerBatch, Segment
from aiokprod.pipeline.partition.ledger import LAST_EPOCH, SEQUENCES, Outcome
from aiokprod.pipeline.partition.size_limit import SHARE
from aiokprod.wire.reader import ZERO_UUID

DELIVERED, NOT, POSSIBLY = Outcome.DELIVERED, Outcome.NOT, Outcome.POSSIBLY
NOT_LEADER, TIMED_OUT, TOO_LARGE, FEW, FEW_AFTER, OUT_OF_ORDER = 6, 7, 10, 19, 20, 45


# ---------------------------------------------------------------------- sequences
def test_45_behind_a_refused_head_is_invisible() -> None:
    """faults: I1"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(), desk.send()
    assert desk.fly() == [first, second]
    desk.answer(first, FEW)
    desk.answer(second, OUT_OF_ORDER)
    desk.returned()
    assert not desk.bumps
    desk.backoff()
    assert desk.fly() == [first]  # the guard: one alone until its acknowledgement
    desk.answer(first, 0, 1)
    assert desk.fly() == [second]
    desk.answer(second, 0, 2)
    assert desk.offsets() == [0, 1, 2]
    assert numbers([first, second]) == [(0, 1, 1), (0, 2, 1)]
    assert not desk.bumps


def test_45_on_a_clean_head_bumps_and_starts_at_0() -> None:
    """faults: I2, P22"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(2), desk.send(3)
    assert desk.fly() == [first, second]
    desk.answer(first, OUT_OF_ORDER)
    desk.answer(second, OUT_OF_ORDER)
    desk.returned()
    assert desk.bumps == [((7, 0), False)]
    desk.backoff()
    assert desk.fly() == []  # no identity yet
    desk.grant((7, 1))
    assert desk.fly() == [first]
    desk.answer(first, 0, 1)
    assert desk.fly() == [second]
    assert numbers([first, second]) == [(1, 0, 2), (1, 2, 3)]
    desk.answer(second, 0, 3)
    assert desk.offsets() == [0, 1, 2, 3, 4, 5]
    assert len(desk.bumps) == 1


def test_45_on_an_ambiguous_head_is_no_verdict_and_the_first_ok_behind_it_proves_it() -> None:
    """faults: I3"""
    desk = Desk()
    desk.warm()
    first, second, third = desk.send(), desk.send(), desk.send()
    assert desk.fly() == [first, second, third]
    desk.lose(first, second, third)
    desk.backoff()
    assert desk.fly() == [first]
    unstamped = desk.send()
    desk.answer(first, OUT_OF_ORDER)
    assert desk.fly() == [second, third]  # those that are stamped already, pipelined
    assert not unstamped.is_stamped
    assert not desk.bumps
    desk.answer(second, OUT_OF_ORDER)
    desk.answer(third, 0, 3)
    assert [desk.told[record] for record in (1, 2, 3)] == [(DELIVERED, None), (DELIVERED, None), (DELIVERED, 3)]
    assert desk.fly() == [unstamped]  # the flow was never interrupted
    desk.answer(unstamped, 0, 4)
    assert not desk.bumps
    assert numbers([unstamped]) == [(0, 4, 1)]


def test_an_ambiguous_head_whose_successors_know_nothing_either_fails_possibly_and_bumps() -> None:
    """faults: I3"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(), desk.send()
    desk.fly()
    desk.lose(first, second)
    desk.backoff()
    assert desk.fly() == [first]
    third = desk.send()
    desk.answer(first, OUT_OF_ORDER)
    assert desk.fly() == [second]
    assert not desk.bumps
    desk.answer(second, OUT_OF_ORDER)
    assert desk.records(POSSIBLY) == [1, 2]
    assert desk.bumps == [((7, 0), False)]
    desk.grant((7, 1))
    desk.backoff()
    assert desk.fly() == [third]
    assert numbers([third]) == [(1, 0, 1)]


def test_an_ambiguous_batch_never_goes_out_under_another_identity() -> None:
    """faults: I3, I4"""
    desk = Desk()
    desk.warm()
    doubtful, clean = desk.send(), desk.send()
    assert desk.fly() == [doubtful, clean]
    desk.answer(doubtful, TIMED_OUT)
    desk.answer(clean, OUT_OF_ORDER)
    desk.returned()
    desk.backoff()
    assert desk.fly() == [doubtful]
    assert numbers([doubtful]) == [(0, 1, 1)]
    desk.answer(doubtful, 47)
    desk.returned()
    assert desk.told[1] == (POSSIBLY, None)
    desk.grant((8, 0))
    desk.backoff()
    assert desk.fly() == [clean]
    assert (clean.identity, clean.first_sequence) == ((8, 0), 0)


def test_a_doubtful_head_in_front_of_an_ok_that_proves_nothing_is_given_up_after_one_round() -> None:
    """ledger: R7.3. Its 45 was asked for again in each round until its deadline: the ACKED batch behind it is never asked."""
    desk = Desk()
    desk.warm()
    first, doubtful, acked = desk.send(), desk.send(), desk.send()
    assert desk.fly() == [first, doubtful, acked]
    desk.lose(first, doubtful, acked)
    desk.backoff()
    assert desk.fly() == [first]
    desk.answer(first, 0, 1)
    assert desk.fly() == [doubtful, acked]
    desk.answer(doubtful, 19)
    desk.answer(acked, 0, 3)  # a refusal came before it in this round (R3.1)
    desk.returned()
    desk.backoff()
    assert desk.fly() == [doubtful]
    desk.answer(doubtful, OUT_OF_ORDER)  # the broker was restarted, and remembers the last batch alone
    assert desk.told[2] == (POSSIBLY, None)
    assert desk.bumps == [((7, 0), False)]


def test_a_batch_that_left_does_not_come_back_with_a_neighbour_after_a_bump() -> None:
    """The batch came back dead at the end of the line, and stayed there: nothing behind it was sent."""
    desk = Desk()
    desk.warm()
    head, first, second, third, last = (desk.send() for _ in range(5))
    assert desk.take() is head
    assert desk.ledger.recall(second, 0)  # from the middle: the entries are linked
    desk.answer(head, OUT_OF_ORDER)
    desk.returned()
    assert desk.bumps == [((7, 0), False)]
    assert desk.ledger.recall(last, 0)
    assert desk.ledger.recall(first, 0)  # linked again
    assert list(desk.ledger.entries) == [head, third]
    assert len(desk.ledger.entries) == 2


def test_a_purge_by_the_user_takes_what_was_never_stamped_and_leaves_no_gap_in_the_numbers() -> None:
    desk = Desk()
    desk.warm()
    first, second, third, last = desk.send(2), desk.send(3), desk.send(4), desk.send(5)
    assert desk.take() is first
    assert desk.take() is second
    desk.answer(first, TIMED_OUT)  # it may be in the log
    taken, left = desk.ledger.recall_all()
    assert taken == [(third.batch, [(0, 4)]), (last.batch, [(0, 5)])]
    assert left == 5
    assert list(desk.ledger.entries) == [first, second] and third.is_dead and last.is_dead
    desk.answer(second, OUT_OF_ORDER)
    desk.returned()
    desk.backoff()
    again = desk.send()
    assert desk.fly() == [first]
    desk.answer(first, 0, 10)
    assert desk.fly() == [second, again]
    assert numbers([first, second, again]) == [(0, 1, 2), (0, 3, 3), (0, 6, 1)]
    assert desk.ledger.recall_all() == ([], 4)


def test_a_purge_by_the_user_leaves_a_batch_that_was_refused_for_certain_and_lost_its_numbers() -> None:
    """As a recall does: it was sent, so it has its outcome from the broker."""
    desk = Desk()
    desk.warm()
    head, behind = desk.send(), desk.send()
    assert desk.take() is head
    desk.answer(head, OUT_OF_ORDER)
    desk.returned()
    assert desk.bumps == [((7, 0), False)] and not head.is_stamped
    assert desk.ledger.recall_all() == ([(behind.batch, [(0, 1)])], 1)
    assert list(desk.ledger.entries) == [head]


def test_a_purge_by_the_user_takes_the_rest_of_a_batch_that_goes_in_parts() -> None:
    desk = Desk()
    desk.warm()
    whole = desk.send(8)
    desk.ledger.size_limit.refused(40, desk.now)
    part = desk.take()
    assert part is not None and 0 < part.count < 8 and part.batch is whole.batch
    assert desk.ledger.recall_all() == ([(whole.batch, [(part.count, 8)])], part.count)
    assert list(desk.ledger.entries) == [part]


def test_a_purge_by_the_user_takes_the_open_batch_without_what_left_it_before() -> None:
    desk = Desk()
    batch = ProducerBatch(BatchOwner(), desk.now, 120.0, 0, 0, 0)
    entry = desk.ledger.open(batch)
    for _ in range(3):
        batch.append(b"v", None, None, 0, 10, desk.now)
    assert desk.ledger.recall(entry, 1)
    batch.settle(Segment(1, 2, -1, -1, RecordRecalledError("recalled"), 0, desk.now))
    assert desk.ledger.recall_all() == ([(batch, [(0, 1), (2, 3)])], 0)
    assert not desk.ledger.entries


def test_an_ambiguous_batch_without_numbers_that_is_answered_45_is_sent_again() -> None:
    """Such a broker is broken. The batch stayed asked until its deadline: without numbers nothing behind it can prove it."""
    desk = Desk(idempotent=False, identity=None)
    entry = desk.send()
    assert desk.fly() == [entry]
    desk.answer(entry, TIMED_OUT)
    desk.returned()
    desk.backoff()
    assert desk.fly() == [entry]
    desk.answer(entry, OUT_OF_ORDER)
    assert len(desk.chases) == 2
    desk.returned()
    desk.backoff()
    assert desk.fly() == [entry]


def test_a_dead_batch_that_is_acked_after_all_holds_back_nothing_behind_it() -> None:
    """ledger: R8.2. Dead and clean it held them back until its numbers are closed up, which an ACKED batch never is."""
    desk = Desk()
    desk.warm()
    first, doubtful = desk.send(), desk.send()
    assert desk.fly() == [first, doubtful]
    desk.lose(first, doubtful)
    desk.backoff()
    assert desk.fly() == [first]
    expiring, last = desk.send(waited_s=100.0), desk.send()
    desk.answer(first, 0, 1)
    assert desk.fly() == [doubtful, expiring, last]
    desk.sleep(30.0)
    assert desk.told[3] == (POSSIBLY, None)
    desk.answer(doubtful, 19)
    desk.answer(expiring, 0, 3)  # proves nothing, as the one in front was refused in this round
    desk.answer(last, 19)
    desk.returned()
    desk.backoff()
    assert desk.fly() == [doubtful]
    desk.answer(doubtful, OUT_OF_ORDER)
    assert desk.fly() == [last]
    desk.answer(last, 0, 4)
    assert desk.records(DELIVERED) == [0, 1, 2, 4]


def test_an_identity_offered_from_outside_is_taken_when_nothing_stamped_is_held() -> None:
    """faults: I4"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(), desk.send()
    assert desk.fly() == [first, second]
    desk.grant((7, 1))  # another partition bumped the identity they share
    third = desk.send()
    assert desk.fly() == [third]
    assert numbers([third]) == [(0, 3, 1)]  # still the old one
    for offset, entry in enumerate((first, second, third), start=1):
        desk.answer(entry, 0, offset)
    fourth, fifth = desk.send(), desk.send()
    assert desk.fly() == [fourth]  # the first of an identity travels alone
    assert numbers([fourth]) == [(1, 0, 1)]
    desk.answer(fourth, 0, 4)
    assert desk.fly() == [fifth]
    assert numbers([fifth]) == [(1, 1, 1)]
    assert not desk.bumps


def test_one_incident_bumps_once_and_only_the_partition_it_happened_to() -> None:
    """faults: I5"""
    busy, idle = Desk(), Desk()
    busy.warm()
    idle.warm()
    five = [busy.send() for _ in range(5)]
    assert busy.fly() == five
    for entry in five:
        busy.answer(entry, OUT_OF_ORDER)
    busy.returned()
    busy.grant((7, 1))
    busy.backoff()
    for offset, entry in enumerate(five, start=1):
        assert busy.fly()[:1] == [entry] or entry.is_flying
        busy.answer(entry, 0, offset)
    assert busy.bumps == [((7, 0), False)]
    assert busy.offsets() == [0, 1, 2, 3, 4, 5]
    later = idle.send()
    assert idle.fly() == [later]
    assert numbers([later]) == [(0, 1, 1)]


def test_the_first_batches_of_an_identity_go_one_by_one_until_one_is_acknowledged() -> None:
    """faults: I6"""
    desk = Desk()
    five = [desk.send() for _ in range(7)]
    assert desk.fly() == five[:1]
    desk.answer(five[0], 0, 0)
    assert desk.fly() == five[1:6]  # then up to the window
    desk.answer(five[1], 0, 1)
    assert desk.fly() == five[6:]


@pytest.mark.parametrize("idle_s", [0.999, 1.001])
def test_a_second_without_an_acknowledgement_closes_the_guard_again(idle_s: float) -> None:
    """faults: I6, ledger R5.2"""
    desk = Desk()
    desk.warm()
    desk.sleep(idle_s)
    both = [desk.send(), desk.send()]
    assert desk.fly() == (both if idle_s < 1 else both[:1])


def test_nothing_goes_to_the_new_leader_before_the_old_one_has_answered_or_is_gone() -> None:
    """faults: I7"""
    desk = Desk()
    desk.warm()
    five = [desk.send() for _ in range(5)]
    assert desk.fly() == five
    desk.leader(2, 4)
    assert [chase.node for chase in desk.chases] == [1]
    new = desk.send()
    desk.sleep(10.0)
    assert desk.fly() == []
    desk.answer(five[0], 0, 1)  # late, and it counts
    for entry in five[1:]:
        desk.answer(entry, NOT_LEADER)
    assert desk.fly() == []
    assert desk.ledger.node == 1
    desk.returned()
    assert desk.ledger.node == 2
    assert len(desk.chases) == 1
    assert desk.fly() == [five[1]]  # at once: the new leader is no reason to wait; and alone
    desk.answer(five[1], 0, 2)
    assert desk.fly() == [*five[2:], new]
    assert [entry.first_sequence for entry in [*five, new]] == [1, 2, 3, 4, 5, 6]
    assert desk.offsets() == [0, 1, 2]


def test_a_second_hop_in_a_row_waits_for_the_backoff() -> None:
    """faults: P7"""
    desk = Desk()
    desk.warm()
    entry = desk.send()
    for hop in range(2):
        assert desk.fly() == [entry]
        desk.leader(2 - hop, 4 + hop)
        desk.answer(entry, NOT_LEADER)
        desk.returned()
    assert desk.fly() == []
    desk.backoff()
    assert desk.fly() == [entry]


@pytest.mark.parametrize(("node", "epoch"), [(2, 2), (2, 3), (-1, -2), (1, 3)])
def test_a_leader_that_is_not_newer_is_ignored(node: int, epoch: int) -> None:
    """faults: P7, T10"""
    desk = Desk()
    desk.warm()
    entry = desk.send()
    assert desk.fly() == [entry]
    desk.leader(node, epoch)
    assert not desk.chases
    assert (desk.ledger.node, desk.ledger.leader_epoch) == (1, 3)


@pytest.mark.parametrize("code", [TOO_LARGE, 87, 32])
def test_an_ambiguous_batch_refused_for_good_is_not_split_and_fails_possibly(code: int) -> None:
    """faults: I12"""
    desk = Desk()
    desk.warm()
    appended, behind = desk.send(8), desk.send()
    assert desk.fly() == [appended, behind]
    desk.lose(appended, behind)
    desk.backoff()
    assert desk.fly() == [appended]
    desk.answer(appended, code, named=(2,) if code == 87 else ())
    desk.returned()
    assert desk.records(POSSIBLY) == list(range(1, 9))
    assert not desk.bumps
    desk.backoff()
    assert desk.fly() == [behind]
    assert numbers([behind]) == [(0, 9, 1)]


@pytest.mark.parametrize("code", [47, 49, 59])
def test_a_lost_identity_is_replaced_by_a_fresh_producer_id(code: int) -> None:
    """faults: I13, I14, I15"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(), desk.send()
    desk.fly()
    desk.answer(first, code)
    desk.answer(second, code)
    desk.returned()
    assert desk.bumps == [((7, 0), True)]
    assert desk.records(NOT, POSSIBLY) == []
    desk.grant((9, 0))
    desk.backoff()
    assert desk.fly() == [first]
    assert (first.identity, first.first_sequence) == ((9, 0), 0)


@pytest.mark.parametrize("code", [47, 49, 59])
def test_a_lost_identity_ends_every_ambiguous_batch_as_possibly_persisted(code: int) -> None:
    """faults: I13, I14, I15"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(), desk.send()
    desk.fly()
    desk.lose(first, second)
    clean = desk.send()
    desk.backoff()
    assert desk.fly() == [first]
    desk.answer(first, code)
    desk.returned()
    assert desk.records(POSSIBLY) == [1, 2]
    assert desk.bumps == [((7, 0), True)]
    desk.grant((9, 0))
    desk.backoff()
    assert desk.fly() == [clean]


def test_46_is_a_success_without_an_offset_even_when_the_broker_names_one() -> None:
    """faults: I16"""
    desk = Desk()
    desk.warm()
    first, second = desk.send(), desk.send()
    desk.fly()
    desk.answer(first, 46)
    desk.answer(second, 46, 77)
    assert (desk.told[1], desk.told[2]) == ((DELIVERED, None), (DELIVERED, None))
    assert not desk.bumps and not desk.chases


def test_the_sequence_after_the_last_is_0_and_a_batch_may_span_it() -> None:
    """faults: I17"""
    desk = Desk(next_sequence=SEQUENCES - 4)
    desk.warm()
    spanning, behind = desk.send(5), desk.send()
    assert desk.fly() == [spanning, behind]
    assert numbers([spanning, behind]) == [(0, SEQUENCES - 3, 5), (0, 2, 1)]
    desk.answer(spanning, 0, 1)
    desk.answer(behind, 0, 6)
    assert desk.offsets() == list(range(7))
    assert not desk.bumps


def test_a_batch_that_ends_at_the_last_sequence_is_followed_by_0() -> None:
    """faults: I17"""
    desk = Desk(next_sequence=SEQUENCES - 3)
    desk.warm()
    last, next_one = desk.send(2), desk.send()
    assert desk.fly() == [last, next_one]
    assert numbers([last, next_one]) == [(0, SEQUENCES - 2, 2), (0, 0, 1)]


def test_a_split_and_closed_numbers_pass_the_last_sequence_too() -> None:
    """faults: I17, P9, P10"""
    desk = Desk(next_sequence=SEQUENCES - 2)
    desk.warm()
    large, behind = desk.send(2 * SHARE), desk.send()
    assert desk.fly() == [large, behind]
    desk.answer(large, TOO_LARGE)
    desk.answer(behind, OUT_OF_ORDER)
    desk.returned()
    (part,) = desk.fly()
    assert numbers([part]) == [(0, SEQUENCES - 1, 2)]
    desk.answer(part, 17)  # refused for good: its two numbers are free again
    desk.returned()
    (part,) = desk.fly()
    assert numbers([part]) == [(0, SEQUENCES - 1, 2)]
    desk.answer(part, 0, 1)
    (part,) = desk.fly()
    assert numbers([part]) == [(0, 1, 4)]
    assert numbers(list(desk.ledger.entries)) == [(0, 1, 4), (-1, -1, 2 * SHARE - 8), (-1, -1, 1)]
    assert not desk.bumps


def test_after_the_last_epoch_a_fresh_producer_id_is_asked_for() -> None:
    """faults: I18"""
    desk = Desk(identity=(7, LAST_EPOCH))
    desk.warm()
    entry = desk.send()
    desk.fly()
    desk.answer(entry, OUT_OF_ORDER)
    desk.returned()
    assert desk.bumps == [((7, LAST_EPOCH), True)]


def test_the_epoch_before_the_last_is_followed_by_the_last() -> None:
    """faults: I18"""
    desk = Desk(identity=(7, LAST_EPOCH - 1))
    desk.warm()
    entry = desk.send()
    desk.fly()
    desk.answer(entry, OUT_OF_ORDER)
    desk.returned()
    assert desk.bumps == [((7, LAST_EPOCH - 1), False)]


def test_an_identity_that_comes_between_the_look_and_the_stamp_is_stamped_as_a_whole() -> None:
    """faults: I19"""
    desk = Desk()
    desk.warm()
    entry = desk.send(3)
    assert desk.ledger.candidate(desk.now, desk.now_ms) is entry  # encoded now, not stamped
    assert not entry.is_stamped
    desk.grant((8, 4))
    assert desk.take() is entry
    assert (entry.identity, entry.first_sequence) == ((8, 4), 0)
    assert desk.ledger.next_sequence == 3


def test_without_an_identity_nothing_is_taken() -> None:
    """faults: I19, I22"""
    desk = Desk(identity=None)
    entry = desk.send()
    assert desk.fly() == []
    desk.grant((7, 0))
    assert desk.fly() == [entry]


def test_a_topic_that_leaves_and_comes_back_keeps_its_sequences() -> None:
    """faults: I21"""
    desk = Desk()
    desk.warm()
    desk.leader(-1, 4, ZERO_UUID)
    entry = desk.send()
    desk.sleep(5.0)
    assert desk.fly() == []
    desk.leader(2, 4)
    assert desk.fly() == [entry]
    assert numbers([entry]) == [(0, 1, 1)]
    assert not desk.bumps
