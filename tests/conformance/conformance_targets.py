"""`Target`: a cluster the cases talk to, a MockCluster or a real one; what is done to it besides requests.

One per name and session. Requests never go through here: cases send them by `Asker`s of their own.
"""

from __future__ import annotations

import contextlib
import struct
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TypeVar

from asker import Asker
from wire_batches import plain

from aiokprod.testing import KafkaCluster, MockCluster
from aiokprod.testing.kafka_cluster.admin import Admin, PartitionState
from aiokprod.testing.kafka_cluster.errors import KafkaAdminError
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages import describe_configs as configs
from aiokprod.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from aiokprod.wire.reader import Reader

Value = TypeVar("Value")

ALTER_CLIENT_QUOTAS, DESCRIBE_QUORUM, UPDATE_FEATURES = 49, 55, 57  # we have no codecs for these
SAFE_DOWNGRADE = 2


class Target(ABC):
    """A cluster as the cases need it."""

    def __init__(self, name: str, version: tuple[int, int]) -> None:
        self.name = name
        self.version = version
        self.produce_version = 12 if version >= (4, 0) else 11 if version >= (3, 8) else 9
        """The newest Produce that names topics by name."""
        self.rules: tuple[int, ...] = version
        """The version whose transactions it keeps: see `keep_transactions_as`."""
        self.admin: Admin
        self._opened: list[Asker] = []

    def __repr__(self) -> str:
        return self.name

    def by_version(self, table: dict[tuple[int, int], Value]) -> Value:
        """Return the entry for the newest Kafka in the table that is not newer than this one."""
        return table[max(known for known in table if known <= self.version)]

    def by_rules(self, table: Mapping[tuple[int, ...], Value]) -> Value:
        """Return the entry for this broker's transaction rules."""
        return table[max(known for known in table if known <= self.rules)]

    def keep_transactions_as(self, transaction_version: int | None) -> None:
        """Set the rules for 4.3 with an older transaction.version to (3, 9, 0) or (3, 9, 1), between 3.9 and 4.x."""
        if transaction_version is not None:
            self.rules = (3, 9, transaction_version)
            self.produce_version = 12 if transaction_version else 11

    # ------------------------------------------------------------------ connections

    @abstractmethod
    def address(self, node: int) -> tuple[str, int]: ...

    def connect(self, node: int = 1, client_id: str = "conformance") -> Asker:
        host, port = self.address(node)
        asker = Asker(host, port, self.produce_version, client_id)
        self._opened.append(asker)
        return asker

    def connect_to_leader(self, topic: str, partition: int = 0, client_id: str = "conformance") -> Asker:
        return self.connect(self.state(topic, partition).leader, client_id)

    def hang_up(self) -> None:
        """Close what the case has opened."""
        while self._opened:
            self._opened.pop().close()

    def close(self) -> None:
        """Close the admin client at the end of the session."""
        self.admin.close()

    # ------------------------------------------------------------------ topics

    @abstractmethod
    def create(self, name: str, partitions: int, replicas: int, config: dict[str, str]) -> None: ...

    @abstractmethod
    def delete(self, name: str) -> None: ...

    @abstractmethod
    def alter(self, name: str, **config: str) -> None: ...

    @abstractmethod
    def move_leader(self, name: str, node: int) -> None: ...

    def new_topic(self, partitions: int = 1, replicas: int = 1, **config: str) -> str:
        """Create a topic whose leaders know that they lead; options have underscores."""
        name = f"conform-{uuid.uuid4().hex[:12]}"
        self.create(name, partitions, replicas, {key.replace("_", "."): value for key, value in config.items()})
        return name

    @property
    def an_hour_ahead(self) -> dict[str, str]:
        """The options of a topic whose records may be an hour ahead: the default since 4.0 (KIP-937, KIP-1030)."""
        if self.version >= (4, 0):
            return {}
        option = "message_timestamp_after_max_ms" if self.version >= (3, 6) else "message_timestamp_difference_max_ms"
        return {option: "3600000"}

    def recreate(self, name: str) -> None:
        self.delete(name)
        deadline = time.monotonic() + 10
        while True:
            try:
                return self.create(name, 1, 1, {})
            except KafkaAdminError as error:  # 2.8 deletes after it has answered
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                    raise

    def state(self, topic: str, partition: int = 0) -> PartitionState:
        partitions = self.admin.topic(topic)
        assert partitions is not None
        return partitions[partition]

    def end_offset(self, topic: str, partition: int = 0) -> int:
        return self.admin.end_offsets(topic)[partition]

    # ------------------------------------------------------------------ trouble

    @abstractmethod
    def set_quota(self, client_id: str, producer_byte_rate: int) -> None: ...

    @abstractmethod
    def frozen(self, topic: str, node: int | None = None) -> contextlib.AbstractContextManager[None]:
        """Freeze a follower inside the block: this one, or the only one there is."""

    @abstractmethod
    def controller(self) -> int:
        """Return the broker without which the cluster decides nothing for a while."""

    @abstractmethod
    def fall_out(self, topic: str) -> None:
        """Wait until the frozen follower has left the in-sync set."""

    isr_patience_ms: int
    """Within this time a frozen follower has fallen out."""

    @abstractmethod
    def killed(self, node: int) -> contextlib.AbstractContextManager[None]:
        """Kill the broker, and start it again after the block. Inside, others lead as soon as they are thawed."""

    def follower(self, topic: str) -> int:
        state = self.state(topic)
        return next(node for node in state.replicas if node != state.leader)

    def until_led_by(self, topic: str, node: int) -> None:
        deadline = time.monotonic() + 30
        while self.state(topic).leader != node:
            assert time.monotonic() < deadline, f"{node} does not lead {topic}"
            time.sleep(0.05)
        self.admin.end_offsets(topic)

    @abstractmethod
    def stopped(self, node: int) -> contextlib.AbstractContextManager[None]:
        """Stop the broker in order, and start it again after the block."""


class MockTarget(Target):
    """A MockCluster on a thread of its own."""

    def __init__(self, name: str, version: tuple[int, int], cluster: MockCluster) -> None:
        super().__init__(name, version)
        self.cluster = cluster
        self.admin = Admin.from_bootstrap(cluster.bootstrap_servers, timeout_s=10.0)

    def address(self, node: int) -> tuple[str, int]:
        broker = self.cluster.broker(node)
        return broker.host, broker.port

    def create(self, name: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
        self.cluster.create_topic(name, partitions, replicas, **config)

    def delete(self, name: str) -> None:
        self.cluster.delete_topic(name)

    def alter(self, name: str, **config: str) -> None:
        self.cluster.alter_topic(name, **config)

    def move_leader(self, name: str, node: int) -> None:
        self.cluster.move_leader(name, 0, node)

    def set_quota(self, client_id: str, producer_byte_rate: int) -> None:
        self.cluster.set_quota(client_id, producer_byte_rate)

    isr_patience_ms = 300

    @contextlib.contextmanager
    def frozen(self, topic: str, node: int | None = None) -> Iterator[None]:
        self.cluster.freeze_replicas(topic, 0, [self.follower(topic) if node is None else node])
        try:
            yield
        finally:
            self.cluster.thaw_replicas(topic, 0)
            alive = [node for node in self.state(topic).replicas if self.cluster.broker(node).is_listening]
            self.cluster.set_isr(topic, 0, alive)

    def controller(self) -> int:
        return 1

    def fall_out(self, topic: str) -> None:
        self.cluster.set_isr(topic, 0, [self.state(topic).leader])

    @contextlib.contextmanager
    def killed(self, node: int) -> Iterator[None]:
        self.cluster.kill_broker(node)
        try:
            yield
        finally:
            self.cluster.start_broker(node)

    @contextlib.contextmanager
    def stopped(self, node: int) -> Iterator[None]:
        self.cluster.stop_broker(node)
        try:
            yield
        finally:
            self.cluster.start_broker(node)


class KafkaTarget(Target):
    """A cluster of real brokers."""

    def __init__(self, name: str, version: tuple[int, int], cluster: KafkaCluster) -> None:
        super().__init__(name, version)
        self.cluster = cluster
        self.admin = cluster.admin

    def address(self, node: int) -> tuple[str, int]:
        broker = self.cluster.broker(node)
        return broker.host, broker.port

    def create(self, name: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
        self.cluster.create_topic(name, partitions, replicas, config)
        self.cluster.end_offsets(name)  # answered by leaders that know they are (broker: 8.2)

    def delete(self, name: str) -> None:
        self.cluster.delete_topic(name)

    def alter(self, name: str, **config: str) -> None:
        options = {key.replace("_", "."): value for key, value in config.items()}
        self.cluster.alter_topic(name, options)
        leader = self.connect_to_leader(name)  # it hears of it a moment after the controller has answered
        wanted = configs.DescribeConfigsResource(2, name, list(options))
        deadline = time.monotonic() + 10
        while True:
            answer = leader.ask(configs.DescribeConfigsRequest(resources=[wanted]), configs.DescribeConfigsResponse, 1)
            if {each.name: each.value for each in answer.results[0].configs} == options:
                break
            assert time.monotonic() < deadline, f"{options} of {name} are not known"
            time.sleep(0.02)
        if self.version < (3, 3):
            self._wait_for_changes(deadline)

    def _wait_for_changes(self, deadline: float) -> None:
        """Wait until a leader applies a later change: changes arrive in order, so that earlier ones are in force then.

        With ZooKeeper a broker reports what is stored there, even before it has heard of it itself.
        """
        sentinel = self.new_topic()
        self.cluster.alter_topic(sentinel, {"max.message.bytes": "1"})
        leader = self.connect_to_leader(sentinel)
        while leader.produce(sentinel, plain()).code != ErrorCode.MESSAGE_TOO_LARGE:
            assert time.monotonic() < deadline, f"{self.name} does not hear of changes"
            time.sleep(0.02)

    def move_leader(self, name: str, node: int) -> None:
        self.cluster.move_leader(name, 0, node)

    def downgrade_transactions(self, transaction_version: int) -> None:
        """Send UpdateFeatures; return when the broker reports the version."""
        name = b"transaction.version"
        update = bytes([len(name) + 1]) + name + struct.pack(">hbb", transaction_version, SAFE_DOWNGRADE, 0)
        asker = self.connect()
        asker.send_body(UPDATE_FEATURES, 1, struct.pack(">ib", 10_000, 2) + update + b"\0\0", flexible=True)
        answer = Reader(asker.answer_body(flexible=True))
        assert (answer.int32(), answer.int16()) == (0, 0)
        deadline = time.monotonic() + 10
        while self._transaction_version() != transaction_version:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        self.hang_up()

    def _transaction_version(self) -> int:
        request = ApiVersionsRequest(client_software_name="aiokprod", client_software_version="1")
        features = self.connect().ask(request, ApiVersionsResponse, 3).finalized_features
        return {each.name: each.max_version_level for each in features}.get("transaction.version", 0)

    def set_quota(self, client_id: str, producer_byte_rate: int) -> None:
        asker = self.connect()
        asker.send_body(ALTER_CLIENT_QUOTAS, 0, _client_quota(client_id, producer_byte_rate), flexible=False)
        throttle_ms, entries, code = struct.unpack_from(">iih", asker.answer_body(flexible=False))
        assert (throttle_ms, entries, code) == (0, 1, 0)
        time.sleep(1.0)  # brokers hear of it a moment after the controller has answered, and show it nowhere

    isr_patience_ms = 13_000  # twice the session of a broker

    @contextlib.contextmanager
    def frozen(self, topic: str, node: int | None = None) -> Iterator[None]:
        follower = self.follower(topic) if node is None else node
        self.cluster.broker(follower).pause()
        time.sleep(0.05)  # until each of its threads has come to a stop
        try:
            yield
        finally:
            self.cluster.broker(follower).resume()

    def controller(self) -> int:
        asker = self.connect()
        name = b"__cluster_metadata"
        asker.send_body(DESCRIBE_QUORUM, 0, b"\2" + bytes([len(name) + 1]) + name + b"\2" + bytes(7), flexible=True)
        answer = Reader(asker.answer_body(flexible=True))
        assert answer.int16() == 0
        assert (answer.count(True), answer.string(True)) == (1, name.decode())
        assert (answer.count(True), answer.int32(), answer.int16()) == (1, 0, 0)
        return answer.int32()

    def fall_out(self, topic: str) -> None:
        deadline = time.monotonic() + 30
        while len(self.state(topic).in_sync) > 1:
            assert time.monotonic() < deadline, "the follower stays in sync"
            time.sleep(0.05)

    @contextlib.contextmanager
    def killed(self, node: int) -> Iterator[None]:
        self.cluster.broker(node).kill()
        try:
            yield
        finally:
            self._bring_back(node)

    @contextlib.contextmanager
    def stopped(self, node: int) -> Iterator[None]:
        self.cluster.broker(node).stop()
        try:
            yield
        finally:
            self._bring_back(node)

    def _bring_back(self, node: int) -> None:
        self.cluster.broker(node).start()
        self.cluster.wait_ready()


def _client_quota(client_id: str, rate: float) -> bytes:
    """Return the body of AlterClientQuotas v0, for which we have no codec."""

    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    entity = struct.pack(">i", 1) + text("client-id") + text(client_id)
    operation = struct.pack(">i", 1) + text("producer_byte_rate") + struct.pack(">d?", rate, False)
    return struct.pack(">i", 1) + entity + operation + b"\0"
