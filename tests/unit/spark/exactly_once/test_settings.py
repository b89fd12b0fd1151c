"""Options of exactly-once writes: what each becomes, and the error that says what is wrong with it."""

from __future__ import annotations

import pytest

from aiokprod.errors import ConfigError
from aiokprod.spark.exactly_once.facts import name_of_query
from aiokprod.spark.exactly_once.protocol import BatchName
from aiokprod.spark.exactly_once.settings import NAMES, ExactlyOnce, read_settings

ON = {"delivery": "exactly_once"}
STREAM = ON | {"sinkid": "orders"}


def read(
    options: dict[str, str], topic: str | None = "t", *, is_stream: bool = True, batch_id: int | None = None
) -> ExactlyOnce:
    found = read_settings(options, topic, is_stream=is_stream, job_id="job", batch_id=batch_id)
    assert found is not None
    return found


def refusal(
    options: dict[str, str], topic: str | None = "t", *, is_stream: bool = True, batch_id: int | None = None
) -> str:
    with pytest.raises(ConfigError) as caught:
        read_settings(options, topic, is_stream=is_stream, job_id="job", batch_id=batch_id)
    return str(caught.value)


def test_rows_are_written_at_least_once_unless_it_is_asked_for() -> None:
    for options in ({}, {"delivery": "at_least_once"}, {"delivery": " AT_LEAST_ONCE "}):
        assert read_settings(options, "t", is_stream=True, job_id="", batch_id=None) is None


@pytest.mark.parametrize("name", [name for name in NAMES if name != "delivery"])
def test_an_option_of_exactly_once_alone_means_nothing(name: str) -> None:
    assert refusal({name.lower(): "1"}) == (
        f"option {name!r} means something with .option('delivery', 'exactly_once') only"
    )


def test_a_stream_is_named_by_its_sink_id_or_its_checkpoint() -> None:
    assert read(STREAM) == ExactlyOnce(sink="orders", topic="t")
    by_checkpoint = read(ON | {"checkpointlocation": "/c/orders/"})
    assert by_checkpoint == read(ON | {"checkpointlocation": "/c/orders"})
    assert by_checkpoint.sink.startswith("aiokprod-")
    assert by_checkpoint.sink != read(ON | {"checkpointlocation": "/c/other"}).sink
    assert refusal(ON).startswith("option 'sinkId' is missing: with delivery=exactly_once each query needs a name")


@pytest.mark.parametrize(
    ("spelling", "sink"),
    [
        ("/c/orders", "aiokprod-262b74cfda298fad64fc"),
        (" /c/orders// ", "aiokprod-262b74cfda298fad64fc"),
        ("/c//orders", "aiokprod-306aa08531b20b2e5ab8"),
        ("/c/x/../orders", "aiokprod-c40dac44b2e5a2de77cd"),
        ("file:/c/orders", "aiokprod-88dc56e6efb7673b44c8"),
        ("file:///c/orders", "aiokprod-c37ee55fc52765534ffc"),
        ("hdfs://nn/c/orders", "aiokprod-ea07bda820399518f920"),
    ],
)
def test_a_running_query_keeps_the_name_that_the_spelling_of_its_checkpoint_gave_it(spelling: str, sink: str) -> None:
    assert read(ON | {"checkpointlocation": spelling}).sink == sink


def test_markers_are_in_the_topic_or_in_another_one() -> None:
    assert read(STREAM | {"markertopic": "m"}).topic == "m"
    assert read(STREAM | {"markertopic": "m"}, None).topic == "m"
    assert refusal(STREAM, None).startswith("option 'markerTopic' is missing: rows name their topics")


def test_options_that_a_transaction_excludes_are_refused_by_their_names() -> None:
    assert refusal(STREAM | {"kafka.acks": "1"}).startswith("kafka.acks is '1', but delivery=exactly_once needs all")
    assert refusal(STREAM | {"kafka.enable.idempotence": "false"}).startswith(
        "kafka.enable.idempotence is 'false', but delivery=exactly_once needs true"
    )
    assert read(STREAM | {"kafka.acks": "-1", "kafka.enable.idempotence": "True"}).sink == "orders"


def test_choices_are_read_and_checked() -> None:
    assert read(STREAM | {"onreplaymismatch": "Duplicate", "onmissingfacts": "write"}) == ExactlyOnce(
        sink="orders", topic="t", may_duplicate=True, may_lack_facts=True, needs_facts=False
    )
    assert read(STREAM | {"onreplaymismatch": "skip"}) == ExactlyOnce(sink="orders", topic="t", may_skip=True)
    assert not read(STREAM | {"onmissingfacts": "fail"}).may_lack_facts
    assert refusal({"delivery": "once"}) == "delivery is 'once': it must be at_least_once or exactly_once"
    assert refusal(STREAM | {"onreplaymismatch": "x"}) == "onReplayMismatch is 'x': it must be fail, duplicate or skip"
    assert refusal(STREAM | {"onmissingfacts": "x"}) == "onMissingFacts is 'x': it must be fail or write"
    for wrong in ("", "a.b", "a b", "é", "x" * 101):
        assert "it must have 1 to 100 letters" in refusal(ON | {"sinkid": wrong})


def test_progress_that_is_tracked_later_is_refused() -> None:
    assert "asyncProgressTrackingEnabled excludes" in refusal(STREAM | {"asyncprogresstrackingenabled": "true"})
    assert read(STREAM | {"asyncprogresstrackingenabled": "false"}).sink == "orders"


def test_a_batch_job_has_a_name_and_a_number() -> None:
    job = read(ON | {"txnappid": "load", "txnversion": "7"}, is_stream=False)
    assert job.job == BatchName(name_of_query("load"), 7)
    assert job.sink == f"aiokprod-{name_of_query('load')[:20]}"
    named = read(STREAM | {"txnappid": "load", "txnversion": "7"}, is_stream=False)
    assert named.sink == f"orders-{name_of_query('load')[:20]}"  # two applications share nothing
    alone = read(ON, is_stream=False)
    assert alone.job == BatchName(name_of_query("job"), 0)
    each = read(ON | {"txnappid": "load"}, is_stream=False, batch_id=3)
    assert each.job == BatchName(name_of_query("load"), 3)


def test_a_batch_job_without_one_of_them_is_refused() -> None:
    assert refusal(ON | {"txnversion": "1"}, is_stream=False).startswith("txnVersion is given without txnAppId")
    assert refusal(ON | {"txnappid": "a"}, is_stream=False).startswith("txnAppId is given without txnVersion")
    assert refusal(ON | {"txnappid": " ", "txnversion": "1"}, is_stream=False).startswith("txnAppId is empty")
    for wrong in ("-1", "x", "", "1.5", "9" * 19):
        assert "it must be a whole number" in refusal(ON | {"txnappid": "a", "txnversion": wrong}, is_stream=False)
    assert refusal(ON, is_stream=False, batch_id=4).startswith("option 'txnAppId' is missing: in foreachBatch")
    assert "for batch jobs and foreachBatch" in refusal(STREAM | {"txnappid": "a"})


def test_a_batch_of_foreach_batch_needs_facts_and_a_job_only_if_it_is_asked_for() -> None:
    named = ON | {"txnappid": "a"}
    job = named | {"txnversion": "20261125"}
    assert not read(job, is_stream=False).needs_facts  # its first number may be any
    assert read(job | {"onmissingfacts": "fail"}, is_stream=False).needs_facts
    assert not read(job | {"onmissingfacts": "write"}, is_stream=False).needs_facts
    assert read(named, is_stream=False, batch_id=4).needs_facts  # counts from 0
    assert not read(named | {"onmissingfacts": "write"}, is_stream=False, batch_id=4).needs_facts
    assert not read(job, is_stream=False, batch_id=4).needs_facts  # has a number of its own
