"""Topics that are not there: brokers are asked to create them, and the log says what is waited for."""

from __future__ import annotations

import asyncio
import logging
import pickle

import pytest
from virtual_rig import kinds, outcomes, room, run, waits_for

from aiokprod import Producer
from aiokprod.errors import AuthenticationError, UndeliveredAtCloseError, UnknownTopicError
from aiokprod.explanation import WaitsFor
from aiokprod.reader import Reader
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.metadata import MetadataResponse


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def test_the_first_record_creates_its_topic_at_once_where_brokers_do_that(caplog: pytest.LogCaptureFixture) -> None:
    # faults: T1
    async def scenario(network: VirtualNetwork) -> None:
        async with (
            MockCluster(brokers=3, network=network, default_partitions=4) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial) as producer,
        ):
            async with asyncio.timeout(1):
                await producer.send("orders", b"v")
            assert cluster.topics == {"orders": 4}

    run(scenario)
    assert warnings_of(caplog) == [], "the answer with which brokers create a topic is no reason to worry"


def test_a_wait_for_a_topic_says_that_brokers_may_create_it(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with (
            MockCluster(brokers=1, network=network, auto_create_topics=False) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial) as producer,
        ):
            sent = producer.send("orders", b"v")
            await asyncio.sleep(1)
            (warning,) = warnings_of(caplog)
            assert "does not know topic 'orders': records wait up to 60 s (max_block_ms)" in warning
            assert "auto.create.topics.enable" in warning
            cluster.create_topic("orders")
            await sent

    run(scenario)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("LEADER_NOT_AVAILABLE", "Try again in some seconds"),
        ("INVALID_TOPIC_EXCEPTION", "correct its name"),
        ("UNKNOWN_TOPIC_OR_PARTITION", "Create the topic"),
    ],
)
def test_the_advice_about_a_topic_is_of_what_the_brokers_said(code: str, advice: str) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        def refuse(answer: MetadataResponse, version: int) -> MetadataResponse:
            for topic in answer.topics:
                topic.error_code, topic.partitions = ErrorCode[code], []
            return answer

        async with (
            MockCluster(brokers=1, network=network) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial, max_block_ms=2_000) as producer,
        ):
            cluster.rewrite_answer("Metadata", refuse, times=None)
            with pytest.raises(UnknownTopicError, match=code) as raised:
                await producer.send("t", b"v")
            assert advice in raised.value.advice
            assert raised.value.advice in raised.value.__notes__

    run(scenario)


def test_a_wait_for_topics_that_never_come_is_told_once(caplog: pytest.LogCaptureFixture) -> None:  # faults: T2
    async def scenario(network: VirtualNetwork) -> None:
        async with (
            MockCluster(brokers=1, network=network, auto_create_topics=False) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial, max_block_ms=30_000) as producer,
        ):
            waiting = [producer.send(topic, b"v") for topic in ("a", "b") for _ in range(100)]
            await asyncio.sleep(10)
            late = producer.send("c", b"v")
            assert set(kinds(await outcomes([*waiting, late]))) == {"UnknownTopicError"}
            cluster.create_topic("a")
            await producer.send("a", b"v")

    run(scenario)
    told = [text for text in warnings_of(caplog) if "does not know" in text]
    assert len(told) == 2
    assert "topics 'a', 'b': records wait up to 30 s (max_block_ms) until they are created" in told[0]
    assert "topic 'c': records wait up to 30 s (max_block_ms) until it is created" in told[1]


def test_a_topic_that_was_deleted_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with (
            MockCluster(brokers=1, network=network, auto_create_topics=False) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial, max_block_ms=5_000) as producer,
        ):
            cluster.create_topic("a")
            await producer.send("a", b"v")
            assert not warnings_of(caplog)
            cluster.delete_topic("a")
            sent = producer.send("a", b"v")
            await asyncio.sleep(3)
            assert len([text for text in warnings_of(caplog) if "does not know topic 'a'" in text]) == 1
            cluster.create_topic("a")
            await sent

    run(scenario)


def test_with_many_unknown_topics_a_line_names_three_of_them(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with (
            MockCluster(brokers=1, network=network, auto_create_topics=False) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial, max_block_ms=1_000) as producer,
        ):
            await outcomes([producer.send(f"t{number}", b"v") for number in range(1_000)])

    run(scenario)
    (told,) = (text for text in warnings_of(caplog) if "does not know" in text)
    assert "topics 't0', 't1', 't2' and 997 more:" in told  # not a thousand lines


def test_no_topic_is_created_where_the_user_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options = {"allow_auto_create_topics": False, "max_block_ms": 2_000}
        async with (
            MockCluster(brokers=1, network=network) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial, **options) as producer,  # type: ignore[arg-type]
        ):
            with pytest.raises(UnknownTopicError, match=r"auto\.create\.topics\.enable"):
                await producer.send("orders", b"v")
            assert cluster.topics == {}

    run(scenario)
    assert any("allow_auto_create_topics is off" in text for text in warnings_of(caplog))


def test_a_reader_creates_no_topic() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network) as cluster:
            options = {"dialer": network.dial, "allow_auto_create_topics": True}
            async with Reader(cluster.bootstrap_servers, timeout=2.0, **options) as reader:  # type: ignore[arg-type]
                with pytest.raises(UnknownTopicError):
                    await reader.partitions("orders")
            assert cluster.topics == {}

    run(scenario)


def test_records_that_wait_at_close_fail_with_what_the_cluster_said(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with (
            MockCluster(brokers=1, network=network, auto_create_topics=False) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial) as producer,
        ):
            awaited = producer.send("orders", b"v")
            producer.send("orders", b"v")
            waiting = asyncio.create_task(awaited.wait())
            await asyncio.sleep(2)
            await producer.close(0)
            with pytest.raises(
                UndeliveredAtCloseError, match=r"topic 'orders' is not there after 2\.0 s: UNKNOWN_TOPIC"
            ) as told:
                await waiting
            assert isinstance(told.value.__cause__, UnknownTopicError)

    run(scenario)
    assert any("1 record failed" in text and "UNKNOWN_TOPIC_OR_PARTITION" in text for text in warnings_of(caplog))


def test_a_wrong_password_is_not_told_as_a_topic_that_is_not_there() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(network=network, sasl_mechanisms=["PLAIN"], users={"u": "right"}) as cluster:
            cluster.create_topic("orders")
            producer = Producer(
                cluster.bootstrap_servers,
                dialer=network.dial,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="PLAIN",
                sasl_username="u",
                sasl_password="wrong",
                max_block_ms=2_000,
            )
            await producer.start(wait=False)
            with pytest.raises(UnknownTopicError) as told:
                await producer.send("orders", b"v")
            with pytest.raises(UnknownTopicError, match="no broker has answered for topic 'orders'"):
                await producer.partitions_for("orders", timeout=1)
            await producer.close()
        error = told.value
        assert error.message.startswith("no broker has answered for topic 'orders' within 2.0 s: ")
        assert "Invalid username or password" in error.message
        assert "is not there" not in str(error) and error.code is None
        assert isinstance(error.__cause__, AuthenticationError)
        for one in (error, error.clone(), pickle.loads(pickle.dumps(error))):
            advice, timeline = one.__notes__
            assert advice == one.advice == f"The topic may well exist. {AuthenticationError.advice}"
            assert timeline.startswith("Timeline of topic orders, after the send:\n  +")

    run(scenario)


def test_a_topic_is_asked_for_while_its_record_waits_for_room() -> None:
    """The record had room only when max_block_ms was over, and its error said that no broker had answered for the topic."""

    async def scenario(network: VirtualNetwork) -> None:
        async with (
            MockCluster(brokers=1, network=network, auto_create_topics=False) as cluster,
            Producer(cluster.bootstrap_servers, dialer=network.dial, max_block_ms=5_000, **room(1_000)) as producer,
        ):
            cluster.create_topic("t")
            blocking = producer.send("missing", bytes(700))
            await asyncio.sleep(1)
            waiting = producer.send("t", bytes(700))
            await asyncio.sleep(1)
            assert waits_for(waiting) is WaitsFor.ROOM
            cluster.fail_next("Metadata", "LEADER_NOT_AVAILABLE", times=None)
            assert blocking.recall()
            assert (await waiting).offset == 0

    run(scenario)
