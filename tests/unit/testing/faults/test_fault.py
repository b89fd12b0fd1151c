"""A fault that makes no sense is refused when it is made."""

from __future__ import annotations

from typing import Any

import pytest

from aiokprod.testing.faults import (
    Answer,
    Close,
    Corrupt,
    Drip,
    Drop,
    Fail,
    Fault,
    HugeLength,
    Rechunk,
    Refuse,
    Rewrite,
    Throttle,
    Truncate,
)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"effect": Drop(), "nth": 0}, "nth=0: the next one is 1"),
        ({"effect": Drop(), "times": 0}, "times=0: at least once"),
        ({"effect": Drop(), "chance": 0.0}, "chance=0.0: above 0"),
        ({"effect": Drop(), "chance": 1.5}, "chance=1.5"),
        ({"effect": Drop(), "api": "Nope"}, "unknown API 'Nope'"),
        ({"effect": Refuse(), "topic": "t"}, "Refuse is about connections"),
        ({"effect": Truncate(-1)}, "Truncate: size=-1"),
        ({"effect": Rechunk(0)}, "Rechunk: largest=0"),
        ({"effect": Drip(0.0)}, "Drip: bytes_per_s=0.0"),
        ({"effect": Corrupt(mask=0)}, "Corrupt: mask=0: 1 to 255, 0 changes nothing"),
        ({"effect": Corrupt(mask=256)}, "Corrupt: mask=256"),
        ({"effect": HugeLength(2**31)}, "HugeLength: length=2147483648"),
    ],
)
def test_nonsense_is_refused_with_its_reason(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Fault(**fields)


@pytest.mark.parametrize(
    "effect",
    [Fail(1), Throttle(1), Answer(lambda *_: None), Rewrite(lambda *_: None), Close(), Refuse()],
    ids=lambda effect: type(effect).__name__,
)
def test_a_fault_of_answers_alone_has_no_before_serving(effect: Any) -> None:
    with pytest.raises(ValueError, match=f"{type(effect).__name__} has no before_serving"):
        Fault(effect=effect, before_serving=True)


def test_a_fault_is_a_value() -> None:
    assert Fault(effect=Fail(7), api="produce").api_key == 0
    assert Fault(effect=Fail(7), api="Produce") == Fault(effect=Fail(7), api="Produce")
    assert len({Fault(effect=Drop()), Fault(effect=Drop()), Fault(effect=Drop(reset=True))}) == 2
