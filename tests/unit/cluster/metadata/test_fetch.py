"""One Metadata request on one connection that is no connection."""

from __future__ import annotations

import asyncio
import tracemalloc
from typing import Any

import pytest
from answers import answer, brokers, topic
from fake_connection import FakeConnection
from virtual_time import run_virtual

from aiokprod.cluster.connection.answer_limits import metadata_bytes, metadata_partitions
from aiokprod.cluster.metadata.fetch import BYTES_PER_SLICE, check_cluster, fetch_metadata
from aiokprod.cluster.metadata.snapshot import MAX_BROKERS
from aiokprod.errors import BrokerAnswerError, ClusterIdMismatchError, ProtocolError, UnsupportedVersionError
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.versions import ApiVersions


class Answering(FakeConnection):
    """A connection that answers at once with these bytes, or this message in the version asked for."""

    def __init__(self, response: MetadataResponse | bytes, versions: tuple[int, int] = (0, 13)) -> None:
        super().__init__()
        self.versions = ApiVersions({MetadataRequest.API_KEY: versions}, {})
        self.response = response
        self.asked: list[tuple[MetadataRequest, int, float]] = []
        self.limits: list[int] = []

    async def call(
        self, kind: Any, version: int, body: bytes, *, timeout_s: float, max_answer_bytes: int
    ) -> memoryview:
        self.limits.append(max_answer_bytes)
        self.asked.append((kind.decode(body, version), version, timeout_s))
        response = self.response
        return memoryview(response if isinstance(response, bytes) else response.encode(version))


async def fetch(connection: Answering, *topics: str, cluster_id: str | None = "ours") -> MetadataResponse:
    return await fetch_metadata(
        connection,  # type: ignore[arg-type]
        topics,
        cluster_id=cluster_id,
        allow_auto_topic_creation=False,
        timeout_s=5.0,
    )


@pytest.mark.parametrize("highest", [7, 9, 12, 13])
def test_it_asks_in_the_highest_version_both_know(highest: int) -> None:
    async def scenario() -> None:
        connection = Answering(answer(topic("t"), topic("u")), versions=(0, highest))
        if highest < 10:
            for entry in connection.response.topics:  # type: ignore[union-attr]
                entry.topic_id = bytes(16)
        response = await fetch(connection, "t", "u")
        assert [entry.name for entry in response.topics] == ["t", "u"]
        request, version, timeout_s = connection.asked[0]
        assert [entry.name for entry in request.topics or []] == ["t", "u"]
        assert (request.allow_auto_topic_creation, version, timeout_s) == (False, highest, 5.0)

    run_virtual(scenario())


def test_a_broker_where_asking_always_creates_topics_is_too_old() -> None:
    async def scenario() -> None:
        with pytest.raises(UnsupportedVersionError):
            await fetch(Answering(answer(), versions=(0, 3)))

    run_virtual(scenario())


def test_a_throttle_is_obeyed() -> None:
    async def scenario() -> None:
        response = answer()
        response.throttle_time_ms = 1500
        connection = Answering(response)
        await fetch(connection)
        assert connection.mutes == [1.5]

    run_virtual(scenario())


def test_what_cannot_be_read_closes_the_connection() -> None:  # faults: H22
    async def scenario() -> None:
        connection = Answering(answer().encode(13) + b"\0")
        with pytest.raises(ProtocolError):
            await fetch(connection)
        assert isinstance(connection.cause, ProtocolError)

    run_virtual(scenario())


def test_an_error_at_the_top_is_no_answer() -> None:  # faults: T17
    async def scenario() -> None:
        connection = Answering(MetadataResponse(error_code=129, brokers=brokers(1)))
        with pytest.raises(BrokerAnswerError, match="REBOOTSTRAP_REQUIRED") as caught:
            await fetch(connection)
        assert caught.value.code == 129
        assert connection.is_open

    run_virtual(scenario())


def test_an_answer_without_brokers_is_none() -> None:  # faults: H16
    async def scenario() -> None:
        with pytest.raises(BrokerAnswerError, match="no broker"):
            await fetch(Answering(answer(brokers=[])))

    run_virtual(scenario())


def test_another_cluster_is_refused_and_its_name_made_harmless() -> None:  # faults: T18, H14
    async def scenario() -> None:
        connection = Answering(answer(cluster_id="theirs\n\x1b[31m"))
        with pytest.raises(ClusterIdMismatchError) as caught:
            await check_cluster(connection, "ours", timeout_s=1.0)  # type: ignore[arg-type]
        assert "\n" not in caught.value.message
        assert "\x1b" not in caught.value.message
        assert isinstance(connection.cause, ClusterIdMismatchError)
        assert connection.asked[0][0].topics == []

    run_virtual(scenario())


@pytest.mark.parametrize("ours", [None, "ours"])
def test_a_cluster_id_of_megabytes_is_none(ours: str | None) -> None:  # faults: H16
    async def scenario() -> None:
        with pytest.raises(BrokerAnswerError, match="a cluster id of 1000000 characters"):
            await fetch(Answering(answer(cluster_id="x" * 1_000_000)), cluster_id=ours)

    run_virtual(scenario())


@pytest.mark.parametrize(("ours", "theirs"), [(None, "any"), ("ours", None), ("ours", "ours")])
def test_a_cluster_is_ours_unless_it_says_otherwise(ours: str | None, theirs: str | None) -> None:
    async def scenario() -> None:
        connection = Answering(answer(cluster_id=theirs))
        await fetch(connection, cluster_id=ours)
        assert connection.is_open

    run_virtual(scenario())


@pytest.mark.parametrize(
    "large",
    [
        answer(*[topic(f"t{number}", [(1, 1)] * 200) for number in range(100)]),
        answer(topic("t0", [(1, 1)] * 20_000)),
        answer(brokers=brokers(*range(9_000))),
        answer(*[topic(f"unasked {number}", [(1, 1)] * 200) for number in range(100)]),
    ],
    ids=["topics", "one topic", "brokers", "others"],
)
def test_a_large_answer_leaves_the_loop_room(large: MetadataResponse) -> None:  # faults: T19, H25
    async def scenario() -> None:
        connection = Answering(large)
        fetching = asyncio.create_task(fetch(connection, *[f"t{number}" for number in range(100)]))
        turns = 0
        while not fetching.done():
            await asyncio.sleep(0)
            turns += 1
        assert turns >= len(large.encode(13)) // BYTES_PER_SLICE
        found = await fetching
        assert len(found.brokers) == len(large.brokers)
        assert len(found.topics) == len([each for each in large.topics if (each.name or "").startswith("t")])

    run_virtual(scenario())


def test_the_length_of_an_answer_follows_from_what_is_asked() -> None:  # faults: H25
    async def scenario() -> None:
        connection = Answering(answer())
        await fetch(connection)
        await fetch(connection, "t", "u")
        assert connection.limits == [metadata_bytes(0), metadata_bytes(2)]

    run_virtual(scenario())


@pytest.mark.parametrize(
    "large",
    [
        answer(brokers=brokers(*range(MAX_BROKERS + 1))),
        answer(topic("t", [(1, 1)] * (metadata_partitions(1) + 1))),
    ],
    ids=["brokers", "partitions"],
)
def test_more_than_was_asked_for_is_refused_before_it_is_read(large: MetadataResponse) -> None:  # faults: H16, H25
    async def scenario() -> None:
        connection = Answering(large)
        data = large.encode(13)
        connection.response = data
        tracemalloc.start()
        try:
            with pytest.raises(ProtocolError, match=r"at most \d+ are accepted") as raised:
                await fetch(connection, "t")
            assert tracemalloc.get_traced_memory()[1] < 2 * len(data)
        finally:
            tracemalloc.stop()
        assert isinstance(connection.cause, ProtocolError)
        kept: Any = raised.value.__traceback__
        while kept is not None:  # errors are kept: they must not keep the answer
            held = kept.tb_frame.f_locals.values() if "tests" not in kept.tb_frame.f_code.co_filename else ()
            assert not [value for value in held if isinstance(value, bytes | memoryview) and len(value) > 1_000]
            kept = kept.tb_next

    run_virtual(scenario())
