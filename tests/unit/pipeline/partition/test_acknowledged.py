"""Which acknowledgements contradict earlier ones, and that nothing else does."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokprod.pipeline.partition.acknowledged import Acknowledged

TOPIC, OTHER = b"a" * 16, b"b" * 16
Ack = tuple[int, int, int]
"""ordinal of the batch, base offset, records"""


def noted(acks: list[Ack], topic_id: bytes = TOPIC, incarnation: int = 0) -> list[tuple[int, int] | None]:
    acknowledged = Acknowledged()
    return [acknowledged.note(*ack, topic_id, incarnation, 3) for ack in acks]


@pytest.mark.parametrize(
    ("acks", "lost"),
    [
        ([(1, 0, 5), (2, 5, 5)], None),
        ([(1, 0, 5), (2, 900, 5)], None),  # others have written in between
        ([(1, 5, 5), (2, 5, 1)], (5, 9)),
        ([(1, 5, 5), (2, 9, 1)], (9, 9)),
        ([(1, 5, 5), (2, 0, 1)], (0, 9)),
        ([(1, 5, 5), (2, 10, 1)], None),
        ([(2, 5, 5), (1, 0, 5)], None),  # its first answer was lost: the log gives the offset of then
        ([(1, 0, 5), (3, 9, 5), (2, 5, 4)], None),
        ([(1, 5, 2), (1, 7, 2), (2, 9, 1)], None),  # parts of one batch
        ([(1, 7, 2), (1, 5, 2), (2, 9, 1)], None),
        ([(1, 7, 2), (1, 5, 2), (2, 8, 1)], (8, 8)),
        ([(1, 5, 5), (1, 5, 5)], None),  # a second answer to one batch
        ([(1, 5, 5)], None),
    ],
)
def test_an_offset_that_was_acknowledged_before_is_lost(acks: list[Ack], lost: tuple[int, int] | None) -> None:
    assert noted(acks)[-1] == lost
    assert noted(acks)[:-1] == [None] * (len(acks) - 1)


def test_what_follows_a_loss_is_compared_with_what_is_there_since() -> None:
    assert noted([(1, 0, 9), (2, 4, 1), (3, 5, 1), (4, 5, 1)]) == [None, (4, 8), None, (5, 5)]


def test_another_topic_of_the_same_name_begins_again() -> None:
    for change in ((OTHER, 0), (TOPIC, 1)):
        acknowledged = Acknowledged()
        assert acknowledged.note(1, 5, 5, TOPIC, 0, 3) is None
        assert acknowledged.note(2, 0, 5, *change, 0) is None
        assert acknowledged.note(3, 4, 5, *change, 0) == (4, 4)


def test_the_epoch_is_that_of_the_batch_that_is_lost() -> None:
    acknowledged = Acknowledged()
    acknowledged.note(1, 0, 5, TOPIC, 0, 3)
    assert acknowledged.note(2, 0, 5, TOPIC, 0, 4) == (0, 4)
    assert (acknowledged.topic_id, acknowledged.leader_epoch) == (TOPIC, 3)


EVENT = st.one_of(
    st.tuples(st.just("own"), st.integers(1, 4)),
    st.tuples(st.just("others"), st.integers(1, 4)),
    st.tuples(st.just("cut"), st.integers(0, 6)),
)


@settings(max_examples=300, deadline=None)
@given(events=st.lists(EVENT, max_size=40), seed=st.integers(0, 2**16))
def test_a_log_that_is_never_cut_contradicts_nothing_and_a_cut_is_found_where_offsets_come_again(
    events: list[tuple[str, int]], seed: int
) -> None:
    """The batches of a window may be acknowledged in any order, as answers are lost; a cut waits for none of them."""
    random, acknowledged = Random(seed), Acknowledged()
    end = ordinal = acked_end = 0
    window: list[Ack] = []
    is_cut = False

    def acknowledge() -> None:
        nonlocal acked_end, is_cut
        random.shuffle(window)
        newest = 0
        for number, base, count in window:
            lost = acknowledged.note(number, base, count, TOPIC, 0, 0)
            if number > newest and not newest and base < acked_end:
                assert is_cut and lost == (base, acked_end - 1)
                acked_end, is_cut = 0, False
            else:
                assert lost is None, (number, base, count, lost)
            newest = max(newest, number)
            acked_end = max(acked_end, base + count) if number == newest else acked_end
        window.clear()

    for event, amount in events:
        if event == "own":
            ordinal += 1
            window.append((ordinal, end, amount))
            end += amount
            if len(window) == 5:
                acknowledge()
        elif event == "others":
            end += amount
        else:
            acknowledge()
            end = max(0, end - amount)
            is_cut = is_cut or end < acked_end
    acknowledge()
