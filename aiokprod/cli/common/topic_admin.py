"""`TopicAdmin`: what the commands ask a cluster: brokers, topics, options; and topics made, changed and deleted."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from types import TracebackType
from typing import Any, Final, NoReturn, Self

from aiokprod.cli.common.running import BUSY, NAME_RULE, tell
from aiokprod.cluster.client import ClusterClient
from aiokprod.cluster.cluster_listener import SilentListener
from aiokprod.cluster.connection.control_request import RequestMessage
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    BrokerAnswerError,
    ClusterAuthorizationError,
    ClusterError,
    ConnectionLostError,
    TopicAuthorizationError,
    UnknownTopicError,
    UsageError,
)
from aiokprod.metrics import Metrics
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from aiokprod.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from aiokprod.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from aiokprod.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from aiokprod.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

DEVELOPMENT: Final = "aiokprod-cluster-"
"""how the id of a development cluster (`aiokprod cluster`) begins"""
TOPIC: Final = 2
BROKER: Final = 4
SET: Final = 0
DELETE: Final = 1
PAUSE_S: Final = 0.2
LATER: Final = frozenset(
    {
        ErrorCode.NOT_CONTROLLER, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)  # fmt: skip
"""codes after which the same question is asked again"""
ADVICE: Final[Mapping[int, str]] = {
    ErrorCode.INVALID_TOPIC_EXCEPTION: f"A name is {NAME_RULE}.",
    ErrorCode.POLICY_VIOLATION: "A policy of the cluster forbids it: ask its administrators.",
    ErrorCode.TOPIC_DELETION_DISABLED: "Set delete.topic.enable=true in the brokers' configuration.",
}
"""what to do, by code, where Kafka's list of codes says less"""
OF_CLUSTER: Final = ("CREATE", "DESCRIBE_CONFIGS")
"""rights on topics that there are on the cluster, too"""
LISTS_TOPICS: Final = "`aiokprod topics list` shows the topics"


class TopicAdmin:
    """A client that asks about brokers and topics.

    Args:
        config: of the connection.
        timeout_s: bound of each call, in seconds.
    """

    def __init__(self, config: ProducerConfig, timeout_s: float) -> None:
        self.config = config
        self._client = ClusterClient(config.replace(allow_auto_create_topics=False), Metrics(), SilentListener())
        self._timeout_s = timeout_s
        self.unanswered = ""
        """what a request without an answer may have done, and how to see it; empty if there is none; told after Ctrl-C"""

    async def __aenter__(self) -> Self:
        await self._client.start(self.config.start_timeout)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.unanswered and isinstance(error, asyncio.CancelledError):
            tell(f"interrupted: {self.unanswered}")
        await self._client.close()

    async def ask(self, message: RequestMessage, node_id: int | None = None) -> Any:
        """Send one request and return its answer.

        Raises:
            ClusterError: no answer in time.
            UsageError: a text is too long for the request.
        """
        try:
            return await self._client.request(message, node_id=node_id, timeout_s=self._timeout_s)
        except struct.error:
            raise UsageError("an argument is too long: these brokers take texts of up to 32,767 bytes") from None

    async def metadata(self, topics: Sequence[str] | None = ()) -> MetadataResponse:
        """Return the brokers, and these topics with their errors; None asks for all topics.

        Raises:
            ClusterError: no answer in time.
        """
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        answer: MetadataResponse = await self.ask(request)
        return answer

    async def refuse_topic(self, code: int, text: str, topic: str, right: str, otherwise: str = "") -> NoReturn:
        """Raise the error of a topic's code; for a topic that does not exist it names the one that was perhaps meant.

        Args:
            code: of the answer.
            text: what is not done.
            topic: its name.
            right: on the topic, which the command needs; each has DESCRIBE in it.
            otherwise: a sentence with what else helps if the topic does not exist.

        Raises:
            ClusterAuthorizationError, TopicAuthorizationError, UnknownTopicError, BrokerAnswerError: always one of them.
        """
        try:
            refuse(code, text, topic, right)
        except UnknownTopicError as error:
            near = await self.near(topic)
            found = f"Did you mean {near!r}?" if near else f"{LISTS_TOPICS}."
            error.advice = f"{found} {otherwise}".rstrip()
            raise

    async def near(self, topic: str) -> str | None:
        """Return the topic that was perhaps meant."""
        try:
            answer = await self.metadata(None)
        except ClusterError:  # the error that is told is that of the topic
            return None
        names = {each.name.lower(): each.name for each in answer.topics if each.name and not each.error_code}
        found = get_close_matches(topic.lower(), names, 1)  # names that differ in upper and lower case are near, too
        return names[found[0]] if found else None

    async def options(
        self, kind: int, name: str, node_id: int | None = None
    ) -> dict[str, DescribeConfigsResourceResult]:
        """Return the options of a topic or a broker.

        Args:
            kind: TOPIC or BROKER.
            name: topic name, or node id as text.
            node_id: the broker to ask; needed for its own options.

        Raises:
            ClusterError, UnknownTopicError, TopicAuthorizationError: the cluster does not tell them.
        """
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        answer: DescribeConfigsResponse = await self.ask(DescribeConfigsRequest(resources=[resource]), node_id)
        for result in answer.results:
            if result.error_code:
                what = f"topic {name!r}" if kind == TOPIC else f"broker {name}"
                text = f"the options of {what} are not told"
                refuse(result.error_code, text, name, "DESCRIBE_CONFIGS", result.error_message)
            return {each.name: each for each in result.configs}
        raise BrokerAnswerError(f"the answer about {name!r} is empty")

    async def create(
        self, name: str, partitions: int, replication: int, options: Mapping[str, str], *, only_check: bool = False
    ) -> None:
        """Create a topic.

        Args:
            name: topic name.
            partitions: number; -1 leaves it to the broker.
            replication: number of replicas; -1 leaves it to the broker.
            options: of the topic.
            only_check: True only asks whether the cluster would.

        Raises:
            ClusterError, TopicAuthorizationError: the cluster does not, or does not answer in time.
        """
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication,
            configs=[CreatableTopicConfig(option, value) for option, value in options.items()],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=round(self._timeout_s * 1000), validate_only=only_check
        )

        async def once(node_id: int) -> tuple[int, str | None]:
            answer: CreateTopicsResponse = await self.ask(request, node_id)
            return next((each.error_code, each.error_message) for each in answer.topics)

        unknown = "" if only_check else f"topic {name!r} may have been created; see: aiokprod topics describe {name}"
        await self._by_controller(once, f"topic {name!r} is not created", name, "CREATE", unknown)

    async def delete(self, name: str) -> None:
        """Delete a topic with all its records.

        Raises:
            ClusterError, UnknownTopicError, TopicAuthorizationError: the cluster does not, or does not answer in time.
        """
        request = DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=round(self._timeout_s * 1000)
        )

        async def once(node_id: int) -> tuple[int, str | None]:
            answer: DeleteTopicsResponse = await self.ask(request, node_id)
            return next((each.error_code, each.error_message) for each in answer.responses)

        unknown = f"topic {name!r} may have been deleted; see: aiokprod topics list"
        await self._by_controller(once, f"topic {name!r} is not deleted", name, "DELETE", unknown)

    async def add_partitions(self, name: str, count: int, *, only_check: bool = False) -> None:
        """Give a topic more partitions.

        Args:
            name: topic name.
            count: of all its partitions, afterwards.
            only_check: True only asks whether the cluster would.

        Raises:
            ClusterError, UnknownTopicError, TopicAuthorizationError: the cluster does not, or does not answer in time.
        """
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=round(self._timeout_s * 1000),
            validate_only=only_check,
        )

        async def once(node_id: int) -> tuple[int, str | None]:
            answer: CreatePartitionsResponse = await self.ask(request, node_id)
            return next((each.error_code, each.error_message) for each in answer.results)

        unknown = "" if only_check else f"topic {name!r} may have more partitions; see: aiokprod topics describe {name}"
        await self._by_controller(once, f"topic {name!r} gets no partitions", name, "ALTER", unknown)

    async def alter(
        self, name: str, options: Mapping[str, str], unset: Sequence[str], *, only_check: bool = False
    ) -> None:
        """Change options of a topic: all of them, or none.

        Args:
            name: topic name.
            options: names and new values.
            unset: names of options that go back to the broker's default.
            only_check: True only asks whether the cluster would.

        Raises:
            ClusterError, UnknownTopicError, TopicAuthorizationError: the cluster does not, or does not answer in time.
        """
        changes = [AlterableConfig(option, SET, value) for option, value in options.items()]
        changes += [AlterableConfig(option, DELETE, None) for option in unset]
        request = IncrementalAlterConfigsRequest(
            resources=[AlterConfigsResource(TOPIC, name, changes)], validate_only=only_check
        )

        async def once(node_id: int) -> tuple[int, str | None]:
            answer: IncrementalAlterConfigsResponse = await self.ask(request, node_id)
            return next((each.error_code, each.error_message) for each in answer.responses)

        unknown = "" if only_check else f"topic {name!r} may be changed; see: aiokprod topics describe {name}"
        await self._by_controller(once, f"topic {name!r} is not changed", name, "ALTER_CONFIGS", unknown)

    async def _by_controller(self, once: Any, text: str, topic: str, right: str, unknown: str) -> None:
        """Ask the controller, which may move; brokers of a KRaft cluster pass the request on."""
        scope = asyncio.timeout(self._timeout_s)
        code, message = 0, None
        try:
            async with scope:
                while True:
                    controller = (await self.metadata()).controller_id
                    self.unanswered = unknown
                    code, message = await once(controller)
                    self.unanswered = ""
                    if code not in LATER:
                        break
                    await asyncio.sleep(PAUSE_S)
        except (TimeoutError, ConnectionLostError) as error:
            if isinstance(error, ConnectionLostError) and not self.unanswered:
                raise
            if self.unanswered or not code:
                why = (
                    error.message
                    if isinstance(error, ConnectionLostError)
                    else f"no answer within {self._timeout_s:g} s"
                )
                undone = ClusterError(f"{self.unanswered or text} ({why})")
                if isinstance(error, TimeoutError):
                    undone.advice = BUSY
                raise undone from error
        if code:
            refuse(code, text, topic, right, message)


async def check_topics(config: ProducerConfig, topics: Sequence[str], timeout_s: float, right: str) -> dict[str, int]:
    """Return the number of partitions of each topic. Unlike a reader it does not wait for a topic to be made.

    Args:
        config: of the connection.
        topics: their names.
        timeout_s: bound of each request, in seconds.
        right: on the topics, which the command needs.

    Raises:
        UnknownTopicError, TopicAuthorizationError, BrokerAnswerError: one cannot be read.
        ClusterError: no answer in time.
    """
    for topic in topics:
        RecordChecks.checked_name(topic)
    async with TopicAdmin(config, timeout_s) as admin:
        answer = await admin.metadata(topics)
        for each in answer.topics:
            if each.error_code and not (each.error_code == ErrorCode.LEADER_NOT_AVAILABLE and each.partitions):
                text = f"topic {each.name!r} cannot be used"
                await admin.refuse_topic(each.error_code, text, each.name or "", right)
    return {each.name or "": len(each.partitions) for each in answer.topics}


def refuse(code: int, text: str, topic: str, right: str, message: str | None = None) -> NoReturn:
    """Raise the error of a code.

    Args:
        code: of the answer.
        text: what is not done.
        topic: that was asked about.
        right: that is needed, on what the code says.
        message: of the broker.

    Raises:
        ClusterAuthorizationError, TopicAuthorizationError, UnknownTopicError, BrokerAnswerError: always one of them.
    """
    text = f"{text}: {name_of(code)}" + (f", {message}" if message else "")
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        of_cluster = ClusterAuthorizationError(text, code=code)
        of_cluster.advice = f"Grant this principal {right if right in OF_CLUSTER else 'DESCRIBE'} on the cluster."
        raise of_cluster
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        of_topic = TopicAuthorizationError(text, code=code)
        of_topic.advice = f"Grant this principal {right} on topic {topic!r}."
        raise of_topic
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(text, code=code)
    error = BrokerAnswerError(text, topic=topic, code=code)
    error.advice = ADVICE.get(code, error.advice)
    raise error
