"""The judge of the copiers: the image of the input is good, and each way to be wrong is told."""

from __future__ import annotations

import pytest
from image import CopierLife, Copies, complaints_of_copies

GIVEN = {0: [0, 1, 2], 1: [0, 2]}  # 1 of the second was a marker or a compacted record, say
IMAGE = {0: [(0, 0), (0, 1), (0, 2)], 1: [(1, 0), (1, 2)]}
SHORT_S, LONG_S, COVERED_S = 10.0, 300.0, 180.0


def life(
    *kinds: str, name: str = "copy-a-0", status: int | None = 0, is_killed: bool = False, log: str = ""
) -> CopierLife:
    return CopierLife(
        name=name, lines=[f"{kind} 1.0 10" for kind in kinds], log=log, is_killed=is_killed, status=status
    )


def checks(made: dict[int, list[tuple[int, int]]], *lives: CopierLife, seconds: float = SHORT_S) -> list[str]:
    copies = Copies(given=GIVEN, made=made, lives=list(lives), seconds=seconds)
    return [each.check for each in complaints_of_copies(copies, COVERED_S)]


def test_the_exact_image_is_good() -> None:
    assert checks(IMAGE, life("o", "a")) == []


@pytest.mark.parametrize(
    ("made", "check"),
    [
        pytest.param([(0, 0), (0, 2)], "copy lost", id="one is missing"),
        pytest.param([(0, 0), (0, 1), (0, 1), (0, 2)], "copy duplicate", id="one is there twice"),
        pytest.param([(0, 0), (0, 1), (0, 2), (0, 3)], "copy ghost", id="one too many"),
        pytest.param([(0, 0), (0, 1), (0, 2), (1, 0)], "copy ghost", id="one of another partition"),
        pytest.param([(0, 1), (0, 0), (0, 2)], "copy reordered", id="out of order"),
    ],
)
def test_what_is_no_image_is_told(made: list[tuple[int, int]], check: str) -> None:
    assert checks(IMAGE | {0: made}, life("o", "a")) == [check]


def test_a_copier_has_to_end_as_it_was_told_to_unless_it_was_killed() -> None:
    assert checks(IMAGE, life(status=1)) == ["end"]
    assert checks(IMAGE, life(status=None)) == ["end"]
    assert checks(IMAGE, life(status=None, is_killed=True), life(name="copy-a-1")) == []


def test_noise_and_a_transaction_that_is_left_open_are_told() -> None:
    assert checks(IMAGE, life(log="Task exception was never retrieved")) == ["noise"]
    copies = Copies(given=GIVEN, made=IMAGE, lives=[life()], open_partitions=[1])
    assert [each.check for each in complaints_of_copies(copies, COVERED_S)] == ["left open"]


def test_a_long_soak_has_to_end_transactions_of_both_kinds() -> None:
    assert checks(IMAGE, life(*"o" * 30), seconds=LONG_S) == ["bug of the soak"]
    assert checks(IMAGE, life("o", "a"), seconds=LONG_S) == ["bug of the soak"]
    assert checks(IMAGE, life(*"o" * 30, "a", "u"), seconds=LONG_S) == []


def test_the_figures_count_the_transactions_of_all_lives() -> None:
    copies = Copies(given=GIVEN, made=IMAGE, lives=[life(*"ooa"), life(*"ou")])
    assert copies.figures() == {
        "records copied in transactions": 5,
        "transactions committed": 3,
        "transactions aborted": 1,
        "transactions whose end was not known": 1,
        "lives of copiers": 2,
    }
