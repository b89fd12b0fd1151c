"""`Explanation` and `ProducerExplanation`: the values, and their texts."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from aiokprod.explanation import (
    LINES_SHOWN,
    Event,
    EventKind,
    Explanation,
    Obstacle,
    ObstacleKind,
    Place,
    ProducerExplanation,
    WaitsFor,
    readable,
)
from aiokprod.model import ProducerState


def explanation(**facts: Any) -> Explanation:
    usual: dict[str, Any] = {
        "topic": "orders", "partition": 3, "place": Place.QUEUED, "waits_for": WaitsFor.TURN, "why": "", "age_s": 2.5,
        "since_s": 0.5,
    }  # fmt: skip
    return Explanation(**usual | facts)


def events(count: int) -> tuple[Event, ...]:
    return tuple(Event(at_s=number, kind=EventKind.ATTEMPT_FAILED, text=f"attempt {number}") for number in range(count))


def test_a_text_names_the_place_the_wait_and_its_times() -> None:
    told = explanation(why="it goes next", left_s=0.25, deadline_s=117.5, attempts=2, broker=1)
    assert str(told) == (
        "orders-3: in a full batch, waits for its turn (0.500 s so far, 0.250 s more): it goes next"
        " (sent 2.500 s ago, 2 attempts, fails in 117.500 s unless it is delivered)"
    )


def test_a_partition_that_is_not_chosen_is_not_named() -> None:
    assert str(explanation(partition=None)).startswith("orders: ")


def test_a_settled_record_waits_for_nothing() -> None:
    told = explanation(place=Place.DELIVERED, waits_for=None, why="offset 7", attempts=1)
    assert told.is_settled and not explanation().is_settled
    assert str(told) == "orders-3: delivered: offset 7 (after 2.500 s, 1 attempt)"


def test_a_handle_with_an_outcome_of_its_own_is_told() -> None:
    assert str(explanation(handle="detached")).endswith("(sent 2.500 s ago, its Delivery is detached)")


def test_of_a_long_story_the_first_and_the_last_lines_are_shown() -> None:
    short = str(explanation(events=events(LINES_SHOWN))).splitlines()
    assert short[1:] == [f"  +{number:.3f} s attempt {number}" for number in range(LINES_SHOWN)]
    long = str(explanation(events=events(100))).splitlines()
    assert len(long) == LINES_SHOWN + 2
    assert (long[1], long[5], long[-1]) == ("  +0.000 s attempt 0", "  ... 92 more ...", "  +99.000 s attempt 99")


def test_a_producer_without_obstacles_is_fine() -> None:
    told = ProducerExplanation(state=ProducerState.READY, brokers_connected=3, buffer_limit_bytes=32 << 20)
    assert told.is_fine
    assert str(told) == (
        "READY: nothing holds deliveries up (brokers connected: 3, requests in flight: 0, buffer: 0.0 KiB of 32.0 MiB)"
    )


def test_the_first_obstacle_leads_and_the_others_follow() -> None:
    told = ProducerExplanation(
        state=ProducerState.DEGRADED,
        obstacles=(
            Obstacle(kind=ObstacleKind.UNREACHABLE, text="no broker has answered"),
            Obstacle(kind=ObstacleKind.BUFFER_FULL, text="the buffer is full"),
        ),
        parked_records=4,
        transaction="open",
        oldest=explanation(),
    )
    assert not told.is_fine
    first, second, third = str(told).splitlines()
    assert first.startswith("DEGRADED: no broker has answered (")
    assert "records in no batch yet: 4, transactional id: open" in first
    assert second == "also: the buffer is full"
    assert third.startswith("the oldest record: orders-3: in a full batch")


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0.0 KiB"), (1_536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (5 << 30, "5120.0 MiB")]
)
def test_sizes_have_a_unit(size: int, text: str) -> None:
    assert readable(size) == text


def test_explanations_are_values() -> None:
    told = ProducerExplanation(state=ProducerState.READY, oldest=explanation(events=events(2)))
    assert pickle.loads(pickle.dumps(told)) == told
    with pytest.raises(dataclasses.FrozenInstanceError):
        told.state = ProducerState.FAILED  # type: ignore[misc]
