"""Places in a topic."""

from __future__ import annotations

from datetime import datetime

import click
import pytest

from aiokprod.cli.common.moments import Kind, Place, PlaceType, place_of

NOW_MS = 1_777_888_800_000


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("beginning", Place(Kind.BEGINNING)), ("earliest", Place(Kind.BEGINNING)), ("End", Place(Kind.END)),
        ("0", Place(Kind.OFFSET, 0)), ("17", Place(Kind.OFFSET, 17)), ("-5", Place(Kind.LAST, 5)),
        ("@1500", Place(Kind.TIME, 1500)), ("90s", Place(Kind.TIME, NOW_MS - 90_000)),
        ("1d", Place(Kind.TIME, NOW_MS - 86_400_000)), ("250ms", Place(Kind.TIME, NOW_MS - 250)),
        ("99999999d", Place(Kind.TIME, 0)), ("2026-05-04T10:00:00Z", Place(Kind.TIME, NOW_MS)),
        ("2026-05-04T12:00:00+02:00", Place(Kind.TIME, NOW_MS)),
        ("2026-05-04", Place(Kind.TIME, round(datetime(2026, 5, 4).timestamp() * 1000))),
    ],
)  # fmt: skip
def test_a_place_is_a_name_an_offset_or_a_time(text: str, place: Place) -> None:
    assert place_of(text, NOW_MS) == place


@pytest.mark.parametrize("text", ["", "soon", "1.5", "--5", "@", "5x", "9" * 30, "2026-13-01"])
def test_anything_else_is_none(text: str) -> None:
    assert place_of(text, NOW_MS) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("2026-13-01", "'2026-13-01' is no date: month"), ("2026-02-30", "'2026-02-30' is no date: day"),
        ("2026-05-04T25:00", "'2026-05-04T25:00' is no date: "), ("soon", "'soon' is no place: beginning, "),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_date_is_told(text: str, told: str) -> None:
    with pytest.raises(click.BadParameter) as error:
        PlaceType().convert(text, None, None)
    assert error.value.message.startswith(told) and len(error.value.message) > len(told)
