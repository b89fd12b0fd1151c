"""Costs of operations where there are many of them: work that is counted, at 1, 10 and 100 times the size."""

from __future__ import annotations

import pytest
from work_counter import counts_of

SIZES = (20, 200, 2_000)
SLACK = 1.3  # of the cost of one; for what is sorted, and for what an empty producer costs


def assert_linear(scenario: str) -> list[dict[str, int]]:
    """Check that one operation costs the same whether there are 20 or 2,000."""
    counts = counts_of(scenario, SIZES)
    of_each = [count["work"] / size for count, size in zip(counts, SIZES, strict=True)]
    assert min(of_each) > 1, "nothing was counted"
    assert of_each[1] <= SLACK * of_each[0] and of_each[2] <= SLACK * of_each[0], counts
    return counts


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "scenario",
    [
        "timeouts_awaited",
        "timeouts_not_awaited",
        "timeouts_of_batches_of_one",
        "deadlines_in_one_batch",
        "deadlines_of_batches_of_one",
    ],
)
def test_a_timeout_costs_the_same_however_many_records_are_in_its_batch(scenario: str) -> None:
    assert_linear(scenario)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "scenario",
    [
        "recalls_oldest_first",
        "recalls_newest_first",
        "recalls_at_random",
        "recalls_at_random_from_one_batch",
        "recalls_newest_first_from_batches_of_one",
        "recalls_at_random_from_batches_of_one",
        "every_other_one_recalled_and_the_rest_delivered",
    ],
)
def test_a_recall_costs_the_same_whatever_the_order_and_the_size_of_batches(scenario: str) -> None:
    assert_linear(scenario)


@pytest.mark.slow_after(1)
@pytest.mark.parametrize("scenario", ["timeouts_of_batches_of_one", "timeouts_not_awaited"])
def test_a_long_line_of_timeouts_does_not_hold_the_loop_for_its_whole_length(scenario: str) -> None:
    some, many = counts_of(scenario, (1_000, 4_000))
    assert many["most"] <= SLACK * some["most"], "the most that is done in one callback"


@pytest.mark.slow_after(1)
@pytest.mark.parametrize(
    "scenario", ["expiry_of_batches_of_one", "expiry_of_batches_of_one_in_many_partitions", "close_with_batches_of_one"]
)
def test_many_batches_that_end_together_do_not_hold_the_loop_until_all_have_ended(scenario: str) -> None:
    """A hundred thousand of one record each held it for seconds."""
    some, many = counts_of(scenario, (1_000, 4_000))
    assert many["most"] <= SLACK * some["most"], "the most that is done in one callback"


@pytest.mark.slow
def test_timeouts_that_are_all_different_keep_no_settled_record() -> None:
    counts = assert_linear("timeouts_that_are_all_different")
    assert max(count["kept"] for count in counts) <= 200


def test_a_handle_that_is_polled_again_and_again_is_kept_once() -> None:
    counts = assert_linear("polls_of_one_handle")
    assert [count["kept"] for count in counts] == [10, 10, 10]


def test_a_task_that_stops_waiting_for_a_handle_does_not_look_at_the_others() -> None:
    assert_linear("tasks_that_give_up")


@pytest.mark.parametrize("scenario", ["half_of_the_partitions_stuck", "sticky_batches"])
def test_a_partition_costs_a_partitioner_the_same_however_many_there_are(scenario: str) -> None:
    assert_linear(scenario)
