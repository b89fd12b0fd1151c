"""`BatchFill`: what a batch takes before compression follows what its topic's batches were packed into."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aiokprod import ProducerConfig
from aiokprod.pipeline.partition.batch_fill import MEMORY_S, MOST_PLAIN_BYTES, BatchFill, most_plain_bytes
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES, PipelineSettings
from aiokprod.records.batch import record_size_bound
from aiokprod.records.compression import plain_that_fits

BATCH = 65_536
MOST = 1_000_000
RATIOS = st.floats(0.001, 1.2)
PACKING = st.floats(0.001, 1.0)


def batches_at(fill: BatchFill, ratio: float, count: int) -> None:
    """Pack so many full batches of records of this ratio."""
    for _ in range(count):
        fill.packed(fill.limit_bytes, max(1, round(fill.limit_bytes * ratio)), 0.0)


# ---------------------------------------------------------------------- the estimate
def test_the_first_batch_is_full_at_batch_size() -> None:
    assert BatchFill(BATCH, MOST).limit_bytes == BATCH


def test_batches_that_pack_better_move_it_little_by_little() -> None:
    fill = BatchFill(BATCH, MOST)
    limits = []
    for _ in range(12):
        batches_at(fill, 0.1, 1)
        limits.append(fill.limit_bytes)
    assert limits == sorted(limits)
    assert limits[0] < 1.3 * BATCH and limits[3] < 3 * BATCH
    assert limits[-1] > 7 * BATCH


def test_one_batch_that_packs_worse_moves_it_at_once() -> None:
    fill = BatchFill(BATCH, MOST)
    batches_at(fill, 0.1, 50)
    fill.packed(fill.limit_bytes, fill.limit_bytes // 2, 0.0)
    assert 0.49 <= fill.ratio <= 0.51
    assert 1.8 * BATCH < fill.limit_bytes <= 2 * BATCH


def test_records_that_do_not_pack_at_all_leave_it_where_it_began() -> None:
    fill = BatchFill(BATCH, MOST)
    batches_at(fill, 0.2, 20)
    batches_at(fill, 1.01, 1)
    assert fill.limit_bytes == BATCH


def test_small_batches_tell_nothing() -> None:
    """A task that awaits its records one by one packs each alone, and that is hardly smaller."""
    fill = BatchFill(BATCH, MOST)
    batches_at(fill, 0.1, 30)
    before = fill.limit_bytes
    fill.packed(120, 130, 0.0)
    fill.packed(BATCH // 4 - 1, BATCH // 4, 0.0)
    assert fill.limit_bytes == before


def test_without_a_codec_it_never_moves() -> None:
    fill = BatchFill(BATCH, BATCH)
    fill.packed(BATCH, 10, 0.0)
    assert fill.limit_bytes == BATCH


@given(st.integers(0, 200_000), st.integers(1, 10), st.lists(st.tuples(st.integers(1, 2_000_000), RATIOS), max_size=60))
def test_it_takes_between_one_batch_size_and_the_bound_whatever_is_packed(
    batch_bytes: int, times: int, packed: list[tuple[int, float]]
) -> None:
    fill = BatchFill(batch_bytes, batch_bytes * times)
    for plain_bytes, ratio in packed:
        before = fill.ratio
        fill.packed(plain_bytes, max(1, int(plain_bytes * ratio)), 0.0)
        assert batch_bytes <= fill.limit_bytes <= batch_bytes * times
        observed = max(1, int(plain_bytes * ratio)) / plain_bytes
        assert fill.ratio == before or min(observed, before) <= fill.ratio <= max(observed, before)


@given(st.integers(1_000, 200_000), PACKING, PACKING)
def test_batches_of_one_kind_of_records_are_never_larger_than_batch_size(
    batch_bytes: int, first: float, second: float
) -> None:
    """Save for the one that shows that they pack worse now."""
    fill = BatchFill(batch_bytes, MOST)
    for ratio in (first, second):
        batches_at(fill, ratio, 1)
        for _ in range(40):
            assert fill.limit_bytes * ratio <= batch_bytes + 1
            batches_at(fill, ratio, 1)


@given(PACKING)
def test_full_batches_come_within_two_dozen(ratio: float) -> None:
    fill = BatchFill(BATCH, MOST)
    batches_at(fill, ratio, 24)
    assert fill.limit_bytes * ratio >= 0.9 * BATCH or fill.limit_bytes >= 0.9 * MOST


# ---------------------------------------------------------------------- refusals
@given(st.integers(1_000, 200_000), st.integers(500, 200_000), PACKING)
def test_a_refused_size_is_not_reached_again(batch_bytes: int, limit_bytes: int, ratio: float) -> None:
    """Each refusal halves what a batch weighs, and no batch weighs less than half of what the topic takes."""
    fill = BatchFill(batch_bytes, MOST)
    batches_at(fill, ratio, 40)
    refusals, wanted = 0, fill.limit_bytes * ratio
    for _ in range(100):
        packed_bytes = int(fill.limit_bytes * ratio)
        if packed_bytes > limit_bytes:
            refusals += 1
            fill.refused(packed_bytes, 0.0)
            assert fill.limit_bytes * ratio <= packed_bytes // 2
        batches_at(fill, ratio, 1)
    assert min(0.45 * limit_bytes, wanted) - 1 <= fill.limit_bytes * ratio <= limit_bytes + 1
    assert not refusals or 2 ** (refusals - 1) <= wanted / limit_bytes


def test_a_batch_that_was_larger_than_expected_and_refused_does_not_make_those_of_the_usual_size_smaller() -> None:
    fill = BatchFill(BATCH, MOST)
    batches_at(fill, 0.1, 40)
    fill.packed(fill.limit_bytes, fill.limit_bytes, 0.0)  # records that do not pack
    fill.refused(fill.limit_bytes * 10, 0.0)
    assert fill.limit_bytes == BATCH


@given(st.integers(500, 2 * BATCH), PACKING)
def test_a_refusal_is_forgotten_step_by_step(limit_bytes: int, ratio: float) -> None:
    """At most one refusal in ten minutes while the limit of the topic stays, and full batches soon after it was raised."""
    fill = BatchFill(BATCH, MOST)
    batches_at(fill, ratio, 40)
    wanted = fill.limit_bytes
    now = 0.0
    while (packed_bytes := int(fill.limit_bytes * ratio)) > limit_bytes:
        fill.refused(packed_bytes, now)
    for _ in range(20):
        now += MEMORY_S / 2
        before = fill.limit_bytes
        fill.packed(100, 90, now)
        assert fill.limit_bytes <= max(before, 2 * before + 1)
        refusals = 0
        while (packed_bytes := int(fill.limit_bytes * ratio)) > limit_bytes:
            fill.refused(packed_bytes, now)
            refusals += 1
        assert refusals <= 1
    for _ in range(12):
        now += MEMORY_S
        fill.packed(100, 90, now)
    assert fill.limit_bytes == wanted


# ---------------------------------------------------------------------- bounds
def settings(**options: object) -> PipelineSettings:
    return PipelineSettings.from_config(ProducerConfig(bootstrap_servers="a:1", **options))  # type: ignore[arg-type]


def test_without_a_codec_a_batch_takes_batch_size() -> None:
    assert settings(batch_size=10_000).most_batch_bytes == 10_000


def test_without_acknowledgements_a_batch_takes_batch_size() -> None:
    """No answer would tell that a topic refused it."""
    assert settings(batch_size=10_000, compression_type="gzip", acks=0).most_batch_bytes == 10_000


def test_without_acknowledgements_a_batch_that_does_not_pack_fits_a_request_too() -> None:
    options = settings(batch_size=1_048_576, max_request_size=1_048_576, compression_type="gzip", acks=0)
    assert 1_040_000 < options.most_batch_bytes == plain_that_fits(1_048_576)


def test_with_a_codec_a_batch_takes_a_megabyte_at_most_with_default_options() -> None:
    most = settings(compression_type="gzip").most_batch_bytes
    assert 1_040_000 < most == plain_that_fits(1_048_576)
    large = {"max_request_size": 50_000_000, "buffer_memory": 500_000_000}
    assert settings(compression_type="gzip", **large).most_batch_bytes == MOST_PLAIN_BYTES
    assert settings(compression_type="gzip", batch_size=5_000_000, **large).most_batch_bytes == 5_000_000


@given(st.integers(200, 100_000_000), st.integers(200, 20_000_000), st.integers(0, 10_000_000))
def test_a_batch_never_needs_more_than_a_request_or_a_fifth_of_the_buffer(
    buffer_bytes: int, request_bytes: int, batch_bytes: int
) -> None:
    request_bytes = min(request_bytes, buffer_bytes)
    batch_bytes = min(batch_bytes, request_bytes)
    most = most_plain_bytes(batch_bytes, request_bytes, buffer_bytes)
    assert most <= plain_that_fits(request_bytes) < request_bytes
    if most > batch_bytes:
        smallest = record_size_bound(-1, 0, 0)
        assert most * (smallest + RECORD_OVERHEAD_BYTES) / smallest <= 0.21 * buffer_bytes
