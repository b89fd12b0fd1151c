"""`Timeline`: bounded, in order, and told as events and as a note."""

from __future__ import annotations

import pytest

from aiokprod.explanation import EventKind, WaitsFor
from aiokprod.pipeline.partition.timeline import (
    FIRST,
    LAST,
    NOTE_LINES,
    TEXT_LIMIT,
    Happening,
    Timeline,
    Waited,
    merged,
    note,
    waits_told,
)


def failed(at: float, number: int = 1, first: int = 0, last: int = 10) -> Happening:
    return Happening(
        at, EventKind.ATTEMPT_FAILED, "was refused", 2, first, last, f"attempt {number} to broker 2", at - 0.5
    )


def unreachable(at: float, text: str = "broker 1 cannot be reached") -> Happening:
    return Happening(at, EventKind.UNREACHABLE, text, 1)


def of(*happenings: Happening) -> Timeline:
    timeline = Timeline()
    for each in happenings:
        timeline.add(each)
    return timeline


def times(happenings: list[Happening]) -> list[float]:
    return [each.at for each in happenings]


def test_the_first_and_the_last_ones_are_kept() -> None:
    timeline = of(*[failed(float(number)) for number in range(1_000)])
    kept = times(timeline.about(0, 10, 0.0))
    assert kept == [*range(FIRST), *range(1_000 - LAST, 1_000)]


def test_what_happens_again_is_counted() -> None:
    timeline = of(*[unreachable(float(number)) for number in range(1, 301)], unreachable(400.0, "another reason"))
    one, other = timeline.about(0, 1, 0.0)
    assert (one.at, one.until, one.times) == (1.0, 300.0, 300)
    assert one.line(1.0) == "broker 1 cannot be reached (300 times, the last at +299.000 s)"
    assert other.line(1.0) == "another reason"
    assert times(timeline.about(0, 1, 200.0)) == [1.0, 400.0], "it still happened after the record was sent"


def test_attempts_that_fail_alike_are_told_one_by_one() -> None:
    assert len(of(failed(1.0), failed(2.0)).about(0, 1, 0.0)) == 2


def test_only_what_concerns_the_records_is_told() -> None:
    timeline = of(failed(1.0, first=0, last=5), failed(2.0, first=5, last=9), unreachable(3.0))
    assert times(timeline.about(4, 5, 0.0)) == [1.0, 3.0]
    assert times(timeline.about(5, 6, 0.0)) == [2.0, 3.0]
    assert times(timeline.about(0, 9, 1.5)) == [2.0, 3.0]


def test_two_timelines_are_one_story_in_the_order_of_time() -> None:
    shared = unreachable(2.0)
    assert times(merged(of(failed(1.0), failed(3.0)), of(shared), 0, 1, 0.0, 0.0)) == [1.0, 2.0, 3.0]
    assert times(merged(of(failed(1.0), shared), of(shared), 0, 1, 0.0, 0.0)) == [1.0, 2.0], "once, not twice"
    assert merged(None, None, 0, 1, 0.0, 0.0) == []


def test_a_story_is_bounded() -> None:
    own = of(*[failed(float(number)) for number in range(100)])
    shared = of(*[Happening(number + 0.5, EventKind.LEADER, "moved") for number in range(100)])
    story = merged(own, shared, 0, 1, 0.0, 0.0)
    assert len(story) == NOTE_LINES
    assert (story[0].at, story[-1].at) == (0.0, 99.5)


def test_texts_from_outside_are_cut_and_have_no_control_characters() -> None:
    happening = Happening(0.0, EventKind.ATTEMPT_FAILED, "bad\nword\x1b[31m" + "x" * 10_000)
    assert len(happening.text) < TEXT_LIMIT + 20
    assert happening.text.isprintable()


def test_an_event_has_times_after_the_send() -> None:
    event = failed(12.0).event(10.0)
    assert (event.at_s, event.kind, event.broker) == (2.0, EventKind.ATTEMPT_FAILED, 2)
    assert event.text == "attempt 1 to broker 2, sent at +1.500 s, was refused"
    assert failed(9.0).event(10.0).at_s == 0.0, "never before the send"
    assert Happening(1.0, EventKind.LEADER, "none").event(0.0).broker is None


def test_a_note_is_the_story_with_its_end() -> None:
    assert note("t-0", 10.0, [failed(12.0)], 15.0, "DeliveryTimeoutError").splitlines() == [
        "Timeline of t-0, after the send:",
        "  +2.000 s attempt 1 to broker 2, sent at +1.500 s, was refused",
        "  +5.000 s failed: DeliveryTimeoutError",
    ]


@pytest.mark.parametrize(
    ("waited", "told"),
    [
        ((WaitsFor.METADATA, 0.0, 0.0, 15.0), ["has waited 5.000 s for the metadata of its topic"]),
        ((WaitsFor.ROOM, 0.0, 12.0, 12.0), ["has waited 2.000 s for room in the buffer"]),
        ((WaitsFor.ROOM, 0.0, 0.0, 10.0), []),
        ((WaitsFor.SERIALIZER, 11.0, 0.0, 11.0), ["has waited 1.000 s for its serializer"]),
        (
            (WaitsFor.PARTITION, 11.0, 13.0, 16.0),
            [
                "has waited 1.000 s for its serializer",
                "has waited 2.000 s for room in the buffer",
                "has waited 3.000 s for its partition to exist",
            ],
        ),
    ],
)
def test_waits_are_told_from_the_times_that_are_kept(waited: Waited, told: list[str]) -> None:
    assert [each.text for each in waits_told(10.0, waited)] == told


def test_a_wait_that_goes_on_is_not_told_yet() -> None:
    assert waits_told(10.0, (WaitsFor.METADATA, 0.0, 0.0, 15.0), is_over=False) == []
    over = waits_told(10.0, (WaitsFor.METADATA, 0.0, 12.0, 15.0), is_over=False)
    assert [each.text for each in over] == ["has waited 2.000 s for room in the buffer"]


def test_waits_of_the_first_record_are_told_to_those_that_were_sent_before_they_ended() -> None:
    waited = (WaitsFor.METADATA, 0.0, 0.0, 15.0)
    assert times(merged(None, None, 0, 1, 10.0, 10.0, waited)) == [15.0]
    assert times(merged(None, None, 7, 8, 16.0, 10.0, waited)) == []
