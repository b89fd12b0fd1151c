"""`send_many` of a list, whose values go on in runs: all is as for values that come one by one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_rig import log, outcomes, run, started

from aiokprod import Record
from aiokprod.errors import SendManyError
from aiokprod.pipeline.partition.value_run import ValueRun
from aiokprod.testing.virtual import VirtualNetwork

PARTITIONS = 3
AMPLE = 1 << 20  # bytes of the buffer with which no record waits for room
REQUESTS = 3  # the place of their number in what `written` returns
values_of = st.lists(
    st.one_of(
        st.integers(0, 300).map(bytes),
        st.sampled_from([b"", b"v" * 40, b"v" * 700, b"v" * 3_000, "text", None, 1.5]),
        st.builds(
            Record, value=st.just(b"r"), key=st.sampled_from([None, b"k"]), partition=st.sampled_from([None, 1, 9])
        ),
    ),
    max_size=60,
)
options_of = st.fixed_dictionaries(
    {
        "batch_size": st.sampled_from([1, 100, 400, 2_000, 4_000]),
        "buffer_memory": st.sampled_from([4_000, 8_000, 20_000, AMPLE]),
        "max_request_size": st.sampled_from([2_000, 4_000]),
        "linger_ms": st.sampled_from([0, 5]),
        "partitioner": st.sampled_from(["uniform_sticky", "sticky", "round_robin", "murmur2"]),
        "compression_type": st.sampled_from(["none", "gzip"]),
        "retries": st.just(1),
    }
)


def written(values: Any, options: dict[str, Any], before: list[bytes | None], flushes: bool) -> list[object]:
    """Return what becomes of a call: the report, the log of each partition, requests, and the producer's books."""
    found: list[object] = []

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=PARTITIONS, **options) as (cluster, producer):
            # A topic has its dispatcher with its first record: without one the values would come one by one in both cases.
            await producer.send("t", b"first", partition=0)
            sent = [producer.send("t", b"before", key) for key in before]
            if flushes:
                await producer.flush()
            try:
                report = await producer.send_many("t", values)
            except SendManyError as failed:
                report = failed.report
            await outcomes(sent)
            failures = [(number, type(error).__name__) for number, error in report.failures]
            found.extend((report.delivered, report.offsets, failures, cluster.requests_seen("Produce")))
            found.extend(log(cluster, partition) for partition in range(PARTITIONS))
            assert producer.metrics()["buffer_used_bytes"] == 0

    run(scenario)
    return found


@settings(deadline=None, max_examples=150)
@given(values_of, options_of, st.lists(st.sampled_from([None, b"k", b"l"]), max_size=5), st.booleans(), st.booleans())
def test_a_list_becomes_what_an_iterator_of_it_becomes(
    values: list[Any], options: dict[str, Any], before: list[bytes | None], flushes: bool, is_tuple: bool
) -> None:
    options["batch_size"] = min(options["batch_size"], options["max_request_size"])
    in_list: Any = tuple(values) if is_tuple else values
    of_list, of_iterator = (written(each, options, before, flushes) for each in (in_list, iter(values)))
    if options["buffer_memory"] < AMPLE:
        # A record of an iterator that waits for room may leave a batch to its linger, where one of a list fills it.
        of_list[REQUESTS] = of_iterator[REQUESTS] = None
    assert of_list == of_iterator


@pytest.mark.parametrize("count", [0, 1, 499, 500, 501, 20_000])
def test_a_list_of_any_length_is_sent(count: int) -> None:
    values = [b"%d" % number for number in range(count)]

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            report = await producer.send_many("t", values)
            assert (report.delivered, report.failures) == (count, [])
            assert log(cluster) == values

    run(scenario)


@pytest.mark.pure("a method of a compiled class cannot be replaced")
def test_runs_end_where_the_partitioner_is_to_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []
    cut = ValueRun.cut

    def counted(run: ValueRun, batch_left_bytes: int, stay_bytes: int) -> None:
        cut(run, batch_left_bytes, stay_bytes)
        runs.append(len(run.cells))

    monkeypatch.setattr(ValueRun, "cut", counted)
    values = [b"%02d" % number for number in range(60)]
    options: dict[str, Any] = {"batch_size": 400, "linger_ms": 1_000}
    in_list = written(values, options, [], flushes=False)
    assert sum(runs) == 60 and 1 < len(runs) < 15
    assert in_list == written(iter(values), options, [], flushes=False)
    assert sum(runs) == 60
    assert sum(1 for records in in_list[4:] if len(records) > 1) > 1, "several partitions have some"  # type: ignore[arg-type]


def test_values_of_a_list_go_behind_a_record_with_a_key_and_headers() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (cluster, producer):
            first = producer.send("t", b"first", b"key", headers=[("h", b"1")])
            report = await producer.send_many("t", [b"0", b"1"])
            assert (report.delivered, (await first).offset, log(cluster)) == (2, 0, [b"first", b"0", b"1"])
            assert cluster.requests_seen("Produce") == 1

    run(scenario)


def test_a_list_that_shrinks_while_it_is_sent_ends_the_call_there() -> None:
    """As an iterator of the list would."""

    async def scenario(network: VirtualNetwork) -> None:
        options: dict[str, Any] = {
            "buffer_memory": 4_000,
            "max_request_size": 4_000,
            "batch_size": 1_000,
            "linger_ms": 0,
        }
        async with started(network, **options) as (cluster, producer):
            values = [b"v" * 500] * 100
            producer.send("t", b"first").add_done_callback(lambda _: values.clear())
            report = await producer.send_many("t", values)
            assert 0 < report.delivered < 100
            assert len(log(cluster)) == report.delivered + 1

    run(scenario)
