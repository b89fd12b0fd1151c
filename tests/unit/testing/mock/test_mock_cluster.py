"""The mock cluster as a whole: brokers that come and go, hostile clients, life and threads."""

from __future__ import annotations

import asyncio
import random
import socket
import threading
from typing import Any

import pytest
import uvloop
from mock_batches import batch, idempotent
from mock_client import RawClient
from mock_requests import NOW_MS, mock, requests_of, values

from aiokprod.testing import MockCluster
from aiokprod.testing.mock import RefusalError
from aiokprod.testing.mock.handlers import APIS
from aiokprod.wire.frames import encode_request_header
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponse
from aiokprod.wire.messages.produce import ProduceRequest, ProduceResponse, TopicProduceData

# ---------------------------------------------------------------------- brokers


def test_a_stopped_broker_refuses_and_comes_back_on_its_port() -> None:
    async def scenario() -> None:
        async with mock(2) as cluster, RawClient(cluster, 2) as other:
            cluster.create_topic("t")
            port = cluster.broker(1).port
            async with RawClient(cluster) as client:
                await client.produce("t", batch(b"a"))
                cluster.stop_broker(1)
                assert await client.is_closed()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", port)
            assert cluster.leader("t") == 2
            assert (await other.produce("t", batch(b"b"))).base_offset == 1
            cluster.start_broker(1)
            async with RawClient(cluster) as client:
                assert cluster.broker(1).port == port
                cluster.move_leader("t", 0, 1)
                assert (await client.produce("t", batch(b"c"))).base_offset == 2
            assert values(cluster) == [b"a", b"b", b"c"]

    asyncio.run(scenario())


def test_a_killed_broker_resets_and_takes_what_only_it_had() -> None:  # broker: 15.5
    async def scenario() -> None:
        async with mock(2) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            await client.produce("t", batch(b"kept"))
            cluster.freeze_replicas("t", 0)
            await client.produce("t", batch(b"lost"), acks=1)
            cluster.kill_broker(1)
            with pytest.raises(ConnectionResetError):
                await client.reader.readexactly(1)
            assert values(cluster) == [b"kept"] and cluster.leader("t") == 2

    asyncio.run(scenario())


def test_stopping_and_starting_within_one_turn_of_the_loop() -> None:
    async def scenario() -> None:
        async with mock() as cluster:
            cluster.stop_broker(1)
            cluster.start_broker(1)
            cluster.kill_broker(1)
            cluster.start_broker(1)
            async with RawClient(cluster) as client:
                await client.ask(MetadataRequest(), MetadataResponse, 12)

    asyncio.run(scenario())


def test_a_broker_can_be_added_advertised_elsewhere_and_rid_of_its_clients() -> None:
    async def scenario() -> None:
        async with mock(racks=["a"]) as cluster, RawClient(cluster) as client:
            assert cluster.add_broker(rack="b") == 2
            cluster.advertise(2, "proxy.example", 1234)
            answer = await client.ask(MetadataRequest(), MetadataResponse, 12)
            assert [(n.node_id, n.host, n.rack) for n in answer.brokers] == [
                (1, "127.0.0.1", "a"),
                (2, "proxy.example", "b"),
            ]
            assert cluster.bootstrap_servers.count(",") == 1 and "proxy" not in cluster.bootstrap_servers
            assert cluster.close_connections() == 1
            assert await client.is_closed()

    asyncio.run(scenario())


# ---------------------------------------------------------------------- hostile clients


def test_bytes_behind_the_body_are_taken() -> None:  # broker: 13.6b
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            body = MetadataRequest(topics=None).encode(13) + b"\0\0\0"
            client.send_frame(encode_request_header(3, 13, 4, "x", True) + body)
            assert (await client.receive(MetadataResponse, 13, 4)).error_code == 0
            for topics in ([], [TopicProduceData(name="t")]):
                answer = await client.ask(ProduceRequest(acks=-1, topic_data=topics), ProduceResponse, 12)
                assert len(answer.responses) == len(topics)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x00\x00\x00",
        b"\xff\xff\xff\xff",
        b"\x7f\xff\xff\xff",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\x00\x00\x00\x04\x00\x00\x00\x0c",
        b"\x00\x00\x00\x0a\x00\x63\x00\x00\x00\x00\x00\x01\xff\xff",
        b"\x00\x00\x00\x0a\x00\x00\x00\x0c\x00\x00\x00\x01\xff\xff",
    ],
    ids=["zero", "minus one", "huge", "http", "tls", "cut header", "unknown api", "no body"],
)  # broker: 13.2, 13.6
def test_bytes_that_are_no_request_close_the_connection(data: bytes) -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            client.writer.write(data)
            assert await client.is_closed()
            assert not cluster.counters.crashes

    asyncio.run(scenario())


def test_a_request_over_the_limit_is_refused_after_those_before_it() -> None:  # broker: 13.2
    async def scenario() -> None:
        async with mock(max_request_bytes=1000) as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            client.send_produce({("t", 0): batch(b"small")})
            await client.produced()
            client.send_produce({("t", 0): batch(b"x" * 2000)})
            assert await client.is_closed()
            assert values(cluster) == [b"small"]

    asyncio.run(scenario())


def test_a_bad_length_right_behind_a_request_closes_after_its_answer() -> None:  # broker: 13.2
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            client.send_produce({("t", 0): batch(b"good")})
            client.writer.write(b"\xff\xff\xff\xff")
            await client.produced()
            assert await client.is_closed()
            assert values(cluster) == [b"good"]

    asyncio.run(scenario())


def test_random_and_mutated_requests_never_crash_a_handler() -> None:
    chance = random.Random(7)

    async def scenario() -> None:
        async with mock() as cluster:
            cluster.create_topic("t")
            for _ in range(150):
                key = chance.choice(list(APIS))
                version = chance.randrange(APIS[key].min_version, APIS[key].max_version + 1)
                flexible = version >= APIS[key].flexible_from
                frame = bytearray(encode_request_header(key, version, 1, "x", flexible))
                if key in (17, 36) or chance.random() < 0.3:
                    frame += chance.randbytes(chance.randrange(60))
                else:
                    frame += requests_of(key, version, cluster)[0].encode(version)
                    for _ in range(chance.randrange(1, 4)):
                        frame[chance.randrange(len(frame))] = chance.randrange(256)
                async with RawClient(cluster) as client:
                    client.send_frame(bytes(frame))
                    client.writer.write_eof()
                    await client.reader.read()
                if "t" not in {topic.name for topic in cluster._state.topics.values()}:
                    cluster.create_topic("t")
            assert cluster.counters.crashes == []

    asyncio.run(scenario())


def test_requests_one_byte_at_a_time_are_put_together() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            body = encode_request_header(3, 12, 9, "x", True) + MetadataRequest(topics=[]).encode(12)
            for byte in len(body).to_bytes(4, "big") + body:
                client.writer.write(bytes([byte]))
                await client.writer.drain()
                await asyncio.sleep(0)
            assert (await client.receive(MetadataResponse, 12, 9)).cluster_id == cluster.cluster_id

    asyncio.run(scenario())


def test_a_client_that_does_not_read_is_not_served_for_ever() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.answer_with("Metadata", lambda request, version: b"x" * 1_000_000, times=None)
            for _ in range(40):
                client.send(MetadataRequest(topics=None), 12)
            served, still = 0, 0
            while served == 0 or still < 200:  # turns of the loop without another one
                await asyncio.sleep(0)
                seen = cluster.requests_seen("Metadata")
                still = still + 1 if seen == served else 0
                served = seen
            assert 0 < served < 40
            for _ in range(40):
                assert len(await client.frame()) > 1_000_000

    asyncio.run(scenario())


# ---------------------------------------------------------------------- life


def test_nothing_is_left_behind_on_the_loop() -> None:
    async def scenario() -> None:
        async with mock(3) as cluster, RawClient(cluster) as waiting, RawClient(cluster) as muted:
            cluster.create_topic("t")
            cluster.freeze_replicas("t", 0)
            cluster.throttle_next("Metadata", 60_000)
            waiting.send_produce({("t", 0): batch(b"v")}, timeout_ms=60_000)
            await muted.ask(MetadataRequest(), MetadataResponse, 12)
            await cluster.until_seen("Produce")
            brokers = [cluster.broker(node) for node in cluster.broker_ids]
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert all(broker.connections == () for broker in brokers)
        assert cluster.records("t")[0].value == b"v"  # what was written can still be read

    asyncio.run(scenario())


def test_a_cluster_on_its_own_thread_is_driven_from_this_one() -> None:
    with mock(2) as cluster:
        cluster.create_topic("t", partitions=2)
        assert cluster.broker(1).port in [int(a.rpartition(":")[2]) for a in cluster.bootstrap_servers.split(",")]

        async def talk() -> None:
            async with RawClient(cluster) as client:
                assert (await client.produce("t", batch(b"v"))).error_code == 0

        asyncio.run(talk())
        cluster.wait_until_seen("Produce", 1, timeout_s=5)
        assert values(cluster) == [b"v"]
        cluster.kill_broker(1)
        assert cluster.leader("t") == 2
        cluster.start_broker(1)
        with pytest.raises(TimeoutError, match=r"9 of Fetch not seen in 0.01 s; seen: .*Produce@1"):
            cluster.wait_until_seen("Fetch", 9, timeout_s=0.01)
        with pytest.raises(RefusalError):
            cluster.create_topic("t")
    assert not [thread for thread in threading.enumerate() if thread.name == "mock-cluster"]
    assert values(cluster) == [b"v"]


def test_it_runs_on_uvloop_too() -> None:
    async def scenario() -> None:
        async with mock(2) as cluster:
            cluster.create_topic("t")
            async with RawClient(cluster) as client:
                assert (await client.produce("t", batch(b"v"))).error_code == 0
                cluster.kill_broker(1)
                assert await client.is_closed()
            cluster.start_broker(1)
            async with RawClient(cluster) as client:
                assert (await client.produce("t", batch(b"v"))).error_code == 6
        assert not cluster.counters.crashes

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())


def test_topics_can_be_made_before_the_cluster_runs_and_the_blocking_wait_refuses_its_own_loop() -> None:
    async def scenario() -> None:
        cluster = mock(3)
        cluster.create_topic("t", partitions=3)
        cluster.create_topic("another")
        assert list(cluster.topics.items()) == [("t", 3), ("another", 1)]
        async with cluster:
            async with RawClient(cluster, 3) as client:
                assert (await client.produce("t", batch(b"v"), partition=2)).error_code == 0
            with pytest.raises(RuntimeError, match="await it instead"):
                cluster.wait_until_seen("Produce")

    asyncio.run(scenario())


def test_fixed_ports_are_taken_as_given() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with mock(ports=[port]) as cluster:
        assert cluster.bootstrap_servers == f"127.0.0.1:{port}"


@pytest.mark.parametrize("arguments", [{"brokers": 0}, {"ports": [1, 2]}, {"sasl_mechanisms": ["GSSAPI"]}])
def test_clusters_that_cannot_be(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"at least one broker|unknown SASL"):
        mock(**arguments)


def test_verbs_name_what_is_not_there() -> None:
    cluster = mock(2)
    cluster.create_topic("t", replication_factor=1)
    with pytest.raises(KeyError, match="no topic 'x' among"):
        cluster.log("x")
    with pytest.raises(KeyError, match="has no partition 3"):
        cluster.log("t", 3)
    with pytest.raises(ValueError, match="2 is no replica"):
        cluster.move_leader("t", 0, 2)


def test_settings_and_state_can_be_changed_under_way() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t")
            for n in range(3):
                await client.produce("t", idempotent(n, timestamp_ms=NOW_MS))
            cluster.delete_records("t", 0, 2)
            assert (await client.produce("t", idempotent(0))).base_offset == 0  # broker: 1.8
            cluster.forget_producers("t")
            assert (await client.produce("t", idempotent(2))).base_offset == 3  # broker: 1.6
            cluster.alter_topic("t", max_message_bytes=10)
            assert (await client.produce("t", idempotent(3))).error_code == 10
            cluster.add_partitions("t", 2)
            assert cluster.partition("t", 1).leader == 1
            assert cluster.expire_producers() == 0
            assert [seen.version for seen in cluster.requests("Produce")] == [12] * 6

    asyncio.run(scenario())


def test_a_small_retention_keeps_a_long_run_small() -> None:
    async def scenario() -> None:
        async with mock() as cluster, RawClient(cluster) as client:
            cluster.create_topic("t", retention_bytes=1000)
            for _ in range(50):
                await client.produce("t", batch(b"x" * 100))
            assert sum(len(one.data) for one in cluster.log("t")) <= 1000
            assert cluster.partition("t").log.end_offset == 50

    asyncio.run(scenario())


def test_a_broker_that_is_not_there_is_told_and_nothing_changes() -> None:
    async def scenario() -> None:
        async with mock(2) as cluster:
            cluster.create_topic("t")
            for change in (
                cluster.kill_broker,
                cluster.stop_broker,
                cluster.start_broker,
                cluster.freeze_broker,
                cluster.thaw_broker,
                cluster.refuse_connections,
                cluster.allow_connections,
                cluster.broker,
            ):
                with pytest.raises(ValueError, match="no broker 9: the brokers are 1, 2"):
                    change(9)
            assert cluster.leader("t") == 1

    asyncio.run(scenario())


def test_options_of_a_topic_that_are_given_as_a_mapping_are_told_as_keywords() -> None:
    with MockCluster(1) as cluster, pytest.raises(TypeError, match=r"is a keyword: .* max_message_bytes=1000"):
        cluster.create_topic("t", options={"max.message.bytes": 1000})
