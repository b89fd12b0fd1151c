"""Outages in the log: each has a line within 15 s of its beginning and one within 5 s of its end; calm has none."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from virtual_rig import outcomes, room, run, started

from aiokprod import OAuthToken, Producer
from aiokprod.errors import AiokprodError
from aiokprod.explanation import ObstacleKind
from aiokprod.model import ProducerState
from aiokprod.pipeline.wall_clock import wall_s
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork
from aiokprod.testing.virtual.loop import VirtualLoop

BEGINS_S = 15.0
ENDS_S = 5.0


class Lines(logging.Handler):
    """The warnings and errors of aiokprod, in the order of the log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def texts(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    def count(self, words: str) -> int:
        return sum(words in text for text in self.texts)

    async def seconds_until(self, words: str, within_s: float) -> str:
        """Return the first line with these words; it comes within so many seconds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not self.count(words):
            assert loop.time() < deadline, (words, self.texts)
            await asyncio.sleep(0.05)
        return next(text for text in self.texts if words in text)


@pytest.fixture
def lines() -> Iterator[Lines]:
    handler = Lines()
    logger = logging.getLogger("aiokprod")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


# ---------------------------------------------------------------------- batches that fail
def test_not_enough_replicas_is_told_at_the_second_failure_with_what_to_do_and_its_end(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, client_id="shop") as (cluster, producer):
            await producer.send("t", b"v")
            assert not lines.texts
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            sent = producer.send("t", b"w")
            text = await lines.seconds_until("NOT_ENOUGH_REPLICAS", 1.0)
            assert text.startswith("producer [shop]: t-0: a batch has failed ")
            assert "to broker 1, was answered NOT_ENOUGH_REPLICAS" in text
            assert "min.insync.replicas" in text and "`aiokprod doctor t`" in text
            told = lines.records[0]
            assert (vars(told)["kafka_topic"], vars(told)["kafka_partition"], vars(told)["kafka_broker"]) == ("t", 0, 1)
            assert (vars(told)["kafka_error"], vars(told)["kafka_client_id"]) == ("NOT_ENOUGH_REPLICAS", "shop")
            await asyncio.sleep(20)
            refusing.cancel()
            await sent
            assert "after 2" in await lines.seconds_until(
                "batches do not fail with NOT_ENOUGH_REPLICAS any more", ENDS_S
            )

    run(scenario)


def test_one_failure_that_is_mended_by_the_next_attempt_is_not_told(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            for _ in range(5):
                cluster.fail_next("Produce", "NOT_LEADER_OR_FOLLOWER", times=1)
                await producer.send("t", b"v")
                await asyncio.sleep(1)
            assert not lines.texts

    run(scenario)


def test_the_lines_of_a_long_outage_become_rare(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=20, linger_ms=0, delivery_timeout_ms=1_000_000) as (cluster, producer):
            refusing = cluster.fail_next("Produce", "KAFKA_STORAGE_ERROR", times=None)
            sent = [producer.send("t", b"w", partition=partition) for partition in range(20)]
            await asyncio.sleep(600)
            assert lines.count("a batch has failed") in range(10, 16)  # 5, 10, 20, 40 s, and then each minute
            assert "more partitions of the topic" in lines.texts[-1]
            refusing.cancel()
            await outcomes(sent)

    run(scenario)


def test_many_topics_that_fail_share_a_line(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            names = [f"topic-{number}" for number in range(30)]
            for name in names:
                cluster.create_topic(name)
            await asyncio.gather(*(producer.send(name, b"v") for name in names))
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            sent = [producer.send(name, b"w") for name in names]
            await asyncio.sleep(4)
            assert len([text for text in lines.texts if "NOT_ENOUGH_REPLICAS" in text]) <= 8
            assert lines.count("more topics fail")
            refusing.cancel()
            await outcomes(sent)
            await lines.seconds_until("more topics do not fail any more", ENDS_S)

    run(scenario)


def test_a_log_handler_that_sends_and_one_that_raises_change_nothing() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")

            class Sends(logging.Handler):
                def emit(self, record: logging.LogRecord) -> None:
                    if producer.health().live:
                        extra.append(producer.send("t", b"from the handler"))
                    raise RuntimeError("broken")

            extra: list[Any] = []
            handler = Sends(logging.WARNING)
            logging.getLogger("aiokprod").addHandler(handler)
            try:
                refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
                sent = producer.send("t", b"w")
                await asyncio.sleep(30)
                refusing.cancel()
                await sent
                await asyncio.sleep(3)
            finally:
                logging.getLogger("aiokprod").removeHandler(handler)
            assert extra
            await outcomes(extra)
            assert len(cluster.records("t")) == 2 + len(extra)

    run(scenario)


# ---------------------------------------------------------------------- the buffer, serializers, tokens
def test_a_full_buffer_is_told_and_that_there_is_room_again(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **room(10_000), linger_ms=0) as (cluster, producer):
            held = cluster.hold("Produce")
            sent = [producer.send("t", b"x" * 4_000) for _ in range(4)]
            text = await lines.seconds_until("the buffer is full", 5.0)
            assert "of buffer_memory are taken; 2 records and 0 tasks wait for room" in text
            await asyncio.sleep(2)
            cluster.release(held)
            await outcomes(sent)
            await lines.seconds_until("there is room in the buffer again", ENDS_S)

    run(scenario)


def test_a_buffer_that_is_full_while_records_flow_is_not_told(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **room(10_000), linger_ms=0) as (_, producer):
            await producer.send_many("t", [b"x" * 1_000] * 5_000)
            assert not lines.texts

    run(scenario)


def test_a_serializer_that_hangs_is_told_and_its_return(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        gate = asyncio.Event()

        async def serialize(topic: str, headers: Any, data: bytes) -> bytes:
            await gate.wait()
            return data

        async with started(network, value_serializer=serialize, client_id="shop") as (_, producer):
            sent = [producer.send("t", b"v") for _ in range(3)]
            text = await lines.seconds_until("a serializer has not returned for", BEGINS_S)
            assert text.startswith("producer [shop]: ") and "topic 't' waits for it, with 3 records" in text
            gate.set()
            await outcomes(sent)
            await lines.seconds_until("no record of topic 't' waits for a slow serializer any more", ENDS_S)

    run(scenario)


def test_a_token_provider_that_hangs_is_told_and_its_return(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        gate = asyncio.Event()

        async def token() -> OAuthToken:
            await gate.wait()
            return OAuthToken("t", None)

        async with MockCluster(
            brokers=1, network=network, seed=1, sasl_mechanisms=["OAUTHBEARER"], users={"t": "t"}
        ) as cluster:
            producer = Producer(
                cluster.bootstrap_servers,
                dialer=network.dial,
                security_protocol="SASL_PLAINTEXT",
                sasl_mechanism="OAUTHBEARER",
                sasl_oauth_token_provider=token,
                client_id="shop",
            )
            starting = asyncio.create_task(producer.start())
            text = await lines.seconds_until("has not returned for 5 s", BEGINS_S)
            assert (
                text == "sasl_oauth_token_provider [shop]: has not returned for 5 s: no connection opens until it does"
            )
            gate.set()
            await lines.seconds_until("has returned, after", ENDS_S)
            await starting
            await producer.close()

    run(scenario)


def test_room_is_not_told_where_what_waits_gives_up_and_the_buffer_is_as_full(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, **room(10_000), linger_ms=0, max_block_ms=4_000, max_waiting_bytes=100_000) as (
            cluster,
            producer,
        ):
            held = cluster.hold("Produce")
            sent = [producer.send("t", b"x" * 4_000) for _ in range(2)]
            for _ in range(40):
                sent.append(producer.send("t", b"y" * 4_000))
                await asyncio.sleep(0.7)
            await asyncio.sleep(10)  # nothing waits any more, and it is as full as before
            assert lines.count("the buffer is full") >= 2 and lines.count("there is room") == 0
            cluster.release(held)
            await outcomes(sent)
            assert "after 3" in await lines.seconds_until("there is room in the buffer again", ENDS_S)

    run(scenario)


def test_the_newest_error_is_the_last_error_and_an_older_failed_attempt_is_not(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            cluster.freeze_broker(1)
            delivery = producer.send("t", b"w")
            await asyncio.sleep(0.1)
            cluster.refuse_connections(1)
            cluster.close_connections(
                abort=True
            )  # the attempt fails once, and is not made again before there is a connection
            await lines.seconds_until("no broker can be reached", BEGINS_S)
            assert not lines.count("a batch has failed")
            assert "no broker can be reached" in str(producer.health().last_error)
            cluster.allow_connections(1)
            cluster.thaw_broker(1)
            await delivery

    run(scenario)


# ---------------------------------------------------------------------- batches that are refused for good
@pytest.mark.parametrize(
    ("code", "hint"), [("TOPIC_AUTHORIZATION_FAILED", "grant it WRITE"), ("MESSAGE_TOO_LARGE", "max.message.bytes")]
)
def test_a_topic_that_refuses_all_is_told_until_it_takes_one(code: str, hint: str, lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            refusing = cluster.fail_next("Produce", code, times=None)
            for _ in range(5):
                assert isinstance((await outcomes([producer.send("t", b"w")]))[0], Exception)
                await asyncio.sleep(1)
            (obstacle,) = producer.explain().obstacles
            assert (obstacle.kind, obstacle.topic) == (ObstacleKind.REFUSED, "t")
            assert f"brokers refuse records of topic 't': {code}, 5 batches in the last" in obstacle.text
            assert hint in obstacle.text and "`aiokprod doctor t`" in obstacle.text
            assert code in str(producer.health().last_error)
            assert lines.count(f"brokers refuse records of topic 't': {code}") == 1
            refusing.cancel()
            await producer.send("t", b"x")
            assert producer.explain().is_fine
            assert code in await lines.seconds_until("topic t: brokers take records again, after", ENDS_S)
            cluster.fail_next("Produce", code)
            assert isinstance((await outcomes([producer.send("t", b"w")]))[0], Exception)
            assert "a batch in the last" in str(producer.explain())
            await asyncio.sleep(61)
            assert producer.explain().is_fine

    run(scenario)


def test_each_record_of_a_batch_says_its_own_age_when_it_failed() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=1) as (cluster, producer):
            await producer.send("t", b"v")
            cluster.kill_broker(1)
            loop = asyncio.get_running_loop()
            sent = []
            for _ in range(30):
                sent.append((loop.time(), producer.send("t", b"w")))
                await asyncio.sleep(1)
            for at, delivery in sent:
                (error,) = await outcomes([delivery])
                assert isinstance(error, AiokprodError) and error.elapsed_s is not None
                assert error.elapsed_s == pytest.approx(delivery.latency, abs=0.02)
                assert 119 <= error.elapsed_s <= 121 and loop.time() >= at + 119

    run(scenario)


# ---------------------------------------------------------------------- brokers that are away
def test_all_brokers_away_are_one_line_that_becomes_rare_and_has_an_end(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=3, partitions=6, linger_ms=0, client_id="shop") as (cluster, producer):
            await asyncio.gather(*(producer.send("t", b"v", partition=partition) for partition in range(6)))
            assert not lines.texts
            for node in cluster.broker_ids:
                cluster.kill_broker(node)
            text = await lines.seconds_until("metadata could not be refreshed", BEGINS_S)
            assert text.startswith("cluster [shop]: ") and "no broker can be reached" in text
            await lines.seconds_until("READY -> DEGRADED because no broker has answered for", BEGINS_S)
            await asyncio.sleep(600)
            assert lines.count("cannot be used") <= 2  # of those that went before the last one did
            assert len(lines.texts) < 20
            for node in cluster.broker_ids:
                cluster.start_broker(node)
            await lines.seconds_until("metadata can be refreshed again, after 6", ENDS_S)
            assert "0 records were delivered, and 0 failed" in await lines.seconds_until("DEGRADED -> READY", ENDS_S)

    run(scenario)


def test_one_broker_away_has_a_line_of_its_own_and_an_end(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=3, partitions=3, linger_ms=0) as (cluster, producer):
            await asyncio.gather(*(producer.send("t", b"v", partition=partition) for partition in range(3)))
            cluster.kill_broker(2)
            await outcomes([producer.send("t", b"v", partition=partition) for partition in range(3)])
            await asyncio.sleep(60)
            assert all("broker 2" in text for text in lines.texts), lines.texts

    run(scenario)


def test_a_frozen_cluster_is_told_and_its_end(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            cluster.freeze_broker(1)
            sent = producer.send("t", b"w")
            text = await lines.seconds_until("READY -> DEGRADED because", BEGINS_S)
            assert "broker 1" in text or "no broker has answered" in text
            await asyncio.sleep(20)
            cluster.thaw_broker(1)
            await sent
            await lines.seconds_until("DEGRADED -> READY because its cause is gone", ENDS_S)

    run(scenario)


# ---------------------------------------------------------------------- the state
def test_degraded_is_told_with_its_reason_and_its_end_with_what_was_delivered_and_lost(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=2, linger_ms=0, client_id="shop", delivery_timeout_ms=30_000) as (
            cluster,
            producer,
        ):
            await producer.send("t", b"v", partition=0)
            began = producer.health().since
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", topic="t", partition=0, times=None)
            sent = [producer.send("t", b"w", partition=0)]
            text = await lines.seconds_until("READY -> DEGRADED", BEGINS_S)
            assert text.startswith(
                "producer [shop]: READY -> DEGRADED because a record for t-0 has had no outcome for 10."
            )
            assert "NOT_ENOUGH_REPLICAS" in text
            health = producer.health()
            assert health.reason is not None and "NOT_ENOUGH_REPLICAS" in health.reason
            assert health.last_error is not None and "NOT_ENOUGH_REPLICAS" in health.last_error
            assert began + 10 < health.since <= wall_s()
            assert health.since == producer.health().since
            sent += [producer.send("t", b"x", partition=1) for _ in range(3)]
            await asyncio.sleep(21)  # the record for t-0 has failed
            await asyncio.sleep(2)
            assert producer.health().state is ProducerState.DEGRADED  # nothing waits, and the next one would wait
            refusing.cancel()
            sent.append(producer.send("t", b"w", partition=0))
            results = await outcomes(sent)
            text = await lines.seconds_until("DEGRADED -> READY", ENDS_S)
            assert text.endswith("meanwhile 4 records were delivered, and 1 failed")
            assert [isinstance(result, Exception) for result in results] == [True, False, False, False, False]
            after = producer.health()
            assert after.reason is None and after.ready and health.since + 15 < after.since <= wall_s()
            assert after.last_error is not None and after.last_error_at is not None  # it is dated

    run(scenario)


def test_a_producer_without_records_is_ready_again_soon_after_its_last_failure(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, delivery_timeout_ms=30_000) as (cluster, producer):
            await producer.send("t", b"v")
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            await outcomes([producer.send("t", b"w")])
            assert producer.health().state is ProducerState.DEGRADED
            refusing.cancel()
            await asyncio.sleep(7)
            assert producer.health().state is ProducerState.READY
            assert lines.count("DEGRADED -> READY") == 1

    run(scenario)


def test_an_outage_lasts_while_records_fail_and_others_follow(lines: Lines) -> None:
    """The records that were late had failed, and those behind them were not late yet: it was READY for some seconds."""

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, delivery_timeout_ms=30_000) as (cluster, producer):
            await producer.send("t", b"v")
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            sent = []
            for _ in range(200):
                sent.append(producer.send("t", b"w"))
                await asyncio.sleep(1)
            assert lines.count("READY -> DEGRADED") == 1 and lines.count("any more") == 0
            assert not producer.health().ready
            refusing.cancel()
            await outcomes(sent)
            assert "after 19" in await lines.seconds_until("DEGRADED -> READY", ENDS_S)

    run(scenario)


def test_a_loop_that_stands_still_is_told_and_counted(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, client_id="shop") as (_, producer):
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.jump(4)
            await asyncio.sleep(2)
            assert not lines.texts
            loop.jump(10)
            text = await lines.seconds_until("the event loop has stood still for 10", 1.0)
            assert text.startswith("producer [shop]: ") and "asyncio.to_thread" in text
            assert 10 <= float(str(producer.metrics()["loop_stalled_seconds"])) < 11
            assert producer.health().ready

    run(scenario)


def test_a_commit_without_an_answer_is_told_and_its_end(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, transactional_id="tx") as (cluster, producer):
            held = cluster.hold("EndTxn")
            producer.begin_transaction()
            await producer.send("t", b"v")
            committing = asyncio.create_task(producer.commit_transaction())
            text = await lines.seconds_until("READY -> DEGRADED", BEGINS_S)
            assert "the transaction has been committing for 10" in text
            assert not producer.health().ready and not producer.explain().is_fine
            cluster.release(held)
            await committing
            await lines.seconds_until("DEGRADED -> READY", ENDS_S)

    run(scenario)


def test_an_outage_right_behind_another_one_is_told_too(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, request_timeout_ms=1_000) as (cluster, producer):
            await producer.send("t", b"v")
            for number in range(1, 4):
                refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
                sent = producer.send("t", b"w")
                await asyncio.sleep(BEGINS_S)
                assert lines.count("READY -> DEGRADED") == number
                assert lines.count("a batch has failed") >= number
                refusing.cancel()
                await sent
                await asyncio.sleep(2)
                assert lines.count("DEGRADED -> READY") == number

    run(scenario)


def test_a_producer_that_connects_in_the_background_is_told_to_be_degraded_after_5_s_only(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(brokers=1, network=network, seed=1) as cluster:
            cluster.kill_broker(1)
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial)
            await producer.start(wait=False)
            assert producer.health().reason is not None
            await asyncio.sleep(4)
            assert not lines.count("DEGRADED")
            await lines.seconds_until("READY -> DEGRADED because no broker was reached yet", 3.0)
            cluster.start_broker(1)
            await lines.seconds_until("DEGRADED -> READY", ENDS_S)
            await producer.close()

    run(scenario)


def test_a_scrape_shows_an_outage_before_any_record_has_failed() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            told = producer.metrics()
            assert (told["oldest_record_seconds"], told["ready_producers"], told["degraded_producers"]) == (0, 1, 0)
            refusing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            sent = producer.send("t", b"w")
            await asyncio.sleep(31)
            told = producer.metrics()
            assert told["oldest_record_seconds"] == pytest.approx(31, abs=0.1)
            assert (told["ready_producers"], told["degraded_producers"], told["records_failed"]) == (0, 1, 0)
            refusing.cancel()
            await sent
            told = producer.metrics()
            assert (told["oldest_record_seconds"], told["ready_producers"], told["degraded_producers"]) == (0, 1, 0)
        told = producer.metrics()
        assert (told["oldest_record_seconds"], told["ready_producers"], told["degraded_producers"]) == (0, 0, 0)

    run(scenario)


def test_an_unknown_topic_that_appears_is_told(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, client_id="shop") as (cluster, producer):
            sent = producer.send("late", b"v")
            await lines.seconds_until("does not know topic 'late'", BEGINS_S)
            await asyncio.sleep(20)
            cluster.create_topic("late")
            text = await lines.seconds_until("topic 'late' is there now, after 2", ENDS_S)
            assert text.startswith("cluster [shop]: ")
            await sent

    run(scenario)


def test_a_topic_that_is_made_again_under_load_is_told_once_with_both_ids(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, client_id="shop") as (cluster, producer):
            await producer.send("t", b"v")
            cluster.delete_topic("t")
            cluster.create_topic("t")
            for _ in range(20):
                await producer.send("t", b"w")
                await asyncio.sleep(0.5)
            (text,) = [text for text in lines.texts if "made again" in text and "its id was" in text]
            assert text.startswith("cluster [shop]: topic 't' was deleted and made again: its id was ")

    run(scenario)


@pytest.mark.parametrize(("brokers", "away_s"), [(1, 0.1), (3, 0.2)])
def test_one_dial_that_fails_behind_a_restart_is_not_told(brokers: int, away_s: float, lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=brokers, linger_ms=0) as (cluster, producer):
            await producer.send("t", b"v")
            for _ in range(3):
                leader = cluster.leader("t")
                assert leader is not None
                cluster.kill_broker(leader)
                sent = producer.send("t", b"w")
                await asyncio.sleep(away_s)
                cluster.start_broker(leader)
                await sent
                await asyncio.sleep(3)
            assert float(str(producer.metrics()["connections_failed"])) >= 1
            assert not lines.texts

    run(scenario)


def test_calm_has_no_line(lines: Lines) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, brokers=3, partitions=6) as (_, producer):
            for _ in range(200):
                await producer.send_many("t", [b"v"] * 50)
                await asyncio.sleep(5)
            assert not lines.texts
            assert producer.health().last_error is None and producer.health().last_error_at is None

    run(scenario)
