"""Admin requests against a scripted broker: which broker is asked, how often, and when it gives up."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

from aiokprod.testing.kafka_cluster.admin import Admin
from aiokprod.testing.kafka_cluster.blocking import BlockingConnection
from aiokprod.testing.kafka_cluster.errors import KafkaAdminError, KafkaClusterError
from aiokprod.wire.broker_frames import encode_response
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages import api_versions, list_offsets, metadata
from aiokprod.wire.messages.create_topics import CreatableTopicResult, CreateTopicsResponse

CREATE_TOPICS = 19
LIST_OFFSETS = 2
METADATA = 3
Script = list[bytes | None]


class ScriptedBroker:
    """A broker that answers ApiVersions (and Metadata, with itself) by rule, all else from a list; None closes."""

    def __init__(self, node_id: int = 1) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._listener.getsockname()
        self.node_id = node_id
        self.script: Script = []
        self.asked: list[int] = []
        self.topic_error = 0
        self.wrong_id = False
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop()
        for thread in self._threads:
            thread.join()

    def drop(self) -> None:
        """Close what is connected, as a restart does."""
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._open.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self._threads.append(threading.Thread(target=self._serve, args=(connection,)))
            self._threads[-1].start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while prefix := connection.recv(4, socket.MSG_WAITALL):
                frame = connection.recv(struct.unpack(">i", prefix)[0], socket.MSG_WAITALL)
                key, _, correlation_id = struct.unpack_from(">hhi", frame)
                self.asked.append(key)
                body = self._answer(key)
                if body is None:
                    return
                connection.sendall(encode_response(correlation_id + self.wrong_id, False, body))

    def _answer(self, key: int) -> bytes | None:
        if key == 18:
            ranges = [
                api_versions.ApiVersion(api_key=k, max_version=4) for k in (LIST_OFFSETS, METADATA, CREATE_TOPICS)
            ]
            return api_versions.ApiVersionsResponse(api_keys=ranges).encode(0)
        if key == METADATA:
            partition = metadata.MetadataResponsePartition(leader_id=1, replica_nodes=[1], isr_nodes=[1])
            topic = metadata.MetadataResponseTopic(name="t", error_code=self.topic_error, partitions=[partition])
            host, port = self.address
            broker = metadata.MetadataResponseBroker(node_id=self.node_id, host=host, port=port)
            return metadata.MetadataResponse(brokers=[broker], controller_id=self.node_id, topics=[topic]).encode(4)
        return self.script.pop(0)


def created(code: int) -> bytes:
    result = CreatableTopicResult(name="t", error_code=code, error_message="why")
    return CreateTopicsResponse(topics=[result]).encode(4)


def end_offset(code: int, offset: int) -> bytes:
    partition = list_offsets.ListOffsetsPartitionResponse(error_code=code, offset=offset)
    topic = list_offsets.ListOffsetsTopicResponse(name="t", partitions=[partition])
    return list_offsets.ListOffsetsResponse(topics=[topic]).encode(4)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker()
    yield made
    made.close()


@pytest.fixture
def make(broker: ScriptedBroker) -> Iterator[Callable[..., Admin]]:
    made: list[Admin] = []

    def build(timeout_s: float = 5.0) -> Admin:
        made.append(Admin(lambda: {1: broker.address}, timeout_s))
        return made[-1]

    yield build
    for admin in made:
        admin.close()


@pytest.mark.parametrize("first", [created(ErrorCode.NOT_CONTROLLER), created(ErrorCode.REQUEST_TIMED_OUT), None])
def test_what_passes_by_itself_is_asked_again(
    broker: ScriptedBroker, make: Callable[..., Admin], first: bytes | None
) -> None:
    broker.script = [first, created(0)]
    make().create_topic("t", 1, 1, {})
    assert broker.asked.count(CREATE_TOPICS) == 2
    assert broker.script == []


def test_a_topic_made_by_the_attempt_whose_answer_was_lost_is_made(
    broker: ScriptedBroker, make: Callable[..., Admin]
) -> None:
    broker.script = [None, None, created(ErrorCode.TOPIC_ALREADY_EXISTS)]
    make().create_topic("t", 1, 1, {})
    assert broker.script == []


def test_a_leader_that_has_not_heard_of_its_new_partition_is_asked_again(
    broker: ScriptedBroker, make: Callable[..., Admin]
) -> None:
    broker.script = [end_offset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1), end_offset(0, 7)]
    assert make().end_offsets("t") == [7]
    assert broker.script == []


def test_a_refusal_is_raised_at_once_with_what_the_broker_said(
    broker: ScriptedBroker, make: Callable[..., Admin]
) -> None:
    broker.script = [created(ErrorCode.TOPIC_ALREADY_EXISTS)]
    with pytest.raises(KafkaAdminError, match="CreateTopics t: TOPIC_ALREADY_EXISTS: why") as refused:
        make().create_topic("t", 1, 1, {})
    assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_connection_that_died_meanwhile_is_replaced_without_a_word(
    broker: ScriptedBroker, make: Callable[..., Admin]
) -> None:
    admin = make()
    assert admin.brokers_seen_by(1) == {1}
    broker.drop()
    assert admin.brokers_seen_by(1) == {1}


def test_a_wait_ends_at_its_deadline_and_says_for_what(broker: ScriptedBroker, make: Callable[..., Admin]) -> None:
    broker.script = [created(ErrorCode.NOT_CONTROLLER)] * 1000
    with pytest.raises(KafkaClusterError, match=r"not yet: topic t is created"):
        make(timeout_s=0.1).create_topic("t", 1, 1, {})


def test_a_topic_is_unknown_led_or_an_error(broker: ScriptedBroker, make: Callable[..., Admin]) -> None:
    admin = make()
    broker.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert admin.topic("t") is None
    broker.topic_error = ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(KafkaAdminError, match="Metadata of t: INVALID_TOPIC_EXCEPTION"):
        admin.topic("t")
    broker.topic_error = 0
    (partition,) = admin.topic("t") or []
    assert (partition.leader, partition.replicas, partition.in_sync) == (1, (1,), (1,))


def test_no_running_broker_is_a_connection_error() -> None:
    admin = Admin(dict)
    assert admin.brokers_seen_by(1) == set()
    with pytest.raises(ConnectionError, match="no broker is running"):
        admin.topic("t")


def test_a_foreign_cluster_is_found_through_any_bootstrap_server_that_answers(broker: ScriptedBroker) -> None:
    host, port = broker.address
    admin = Admin.from_bootstrap(f"127.0.0.1:1,{host}:{port}")
    assert admin.topic("t") is not None
    admin.close()


def test_an_answer_to_another_request_ends_the_connection(broker: ScriptedBroker) -> None:
    broker.wrong_id = True
    with pytest.raises(ConnectionError, match="answer to request 2, expected 1"):
        BlockingConnection(*broker.address, timeout_s=5.0)
