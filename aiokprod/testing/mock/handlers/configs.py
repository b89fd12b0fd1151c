"""DescribeConfigs and IncrementalAlterConfigs: the options of topics, and the few a mock broker has of its own.

What the mock does not obey is kept and shown all the same: tools set and compare such options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiokprod.testing.mock.cluster_state import RefusalError, Topic
from aiokprod.testing.mock.handlers.api import Call, Items
from aiokprod.testing.mock.log import TopicSettings
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from aiokprod.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

TOPIC, BROKER = 2, 4  # types of a resource
OF_TOPIC, OF_BROKER, BY_DEFAULT = (
    1,
    4,
    5,
)  # the source of a value: set on the topic, set on the broker, Kafka's default
SET, DELETE, APPEND, SUBTRACT = range(4)  # what may be done to an option
BOOLEAN, STRING, INT, LONG, LIST = 1, 2, 3, 5, 7  # types of an option

TYPES: Final[Mapping[str, int]] = {
    "auto.create.topics.enable": BOOLEAN,
    "cleanup.policy": LIST,
    "max.message.bytes": INT,
    "message.timestamp.after.max.ms": LONG,
    "message.timestamp.before.max.ms": LONG,
    "min.insync.replicas": INT,
    "num.partitions": INT,
    "retention.bytes": LONG,
}


def _defaults(of_brokers: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the mock obeys, with the values of a topic that sets none."""
    settings = TopicSettings({}, of_brokers)
    return {
        "cleanup.policy": "delete",
        "max.message.bytes": str(settings.max_message_bytes),
        "message.timestamp.after.max.ms": str(settings.timestamp_after_max_ms),
        "message.timestamp.before.max.ms": str(settings.timestamp_before_max_ms),
        "message.timestamp.type": "CreateTime",
        "min.insync.replicas": str(settings.min_insync_replicas),
        "retention.bytes": str(settings.retention_bytes),
        **of_brokers,
    }


def describe_configs_items(_call: Call, request: DescribeConfigsRequest) -> Items:
    """Return the topics a request names, for fault rules."""
    return [(asked.resource_name, -1) for asked in request.resources if asked.resource_type == TOPIC]


def describe_configs(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
    """Return every option of each resource, or those that are asked for."""
    response = DescribeConfigsResponse()
    # A resource that is named again is answered once: an answer is no larger than what there is.
    for asked in {(each.resource_type, each.resource_name): each for each in request.resources}.values():
        result = DescribeConfigsResult(
            resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
        )
        try:
            result.configs = [
                _shown(name, value, source, request.include_synonyms)
                for name, (value, source) in sorted(_options(call, asked).items())
                if asked.configuration_keys is None or name in asked.configuration_keys
            ]
        except RefusalError as refusal:
            result.error_code, result.error_message = int(refusal.code), refusal.message
        response.results.append(result)
    return response


def _options(call: Call, asked: DescribeConfigsResource) -> dict[str, tuple[str, int]]:
    """Return the values, and the source of each."""
    if asked.resource_type == TOPIC:
        topic = _topic(call, asked.resource_name)
        options = {name: (value, BY_DEFAULT) for name, value in _defaults(topic.settings.defaults).items()}
        return options | {name: (value, OF_TOPIC) for name, value in topic.settings.options.items()}
    if asked.resource_type == BROKER:
        state = call.broker.state
        if asked.resource_name not in [str(node) for node in state.nodes]:
            raise RefusalError(ErrorCode.INVALID_REQUEST, f"there is no broker {asked.resource_name!r}")
        return {
            "auto.create.topics.enable": (str(state.auto_create_topics).lower(), OF_BROKER),
            "num.partitions": (str(state.default_partitions), OF_BROKER),
        }
    raise RefusalError(ErrorCode.INVALID_REQUEST, f"the mock has no resources of type {asked.resource_type}")


def _shown(name: str, value: str, source: int, with_synonyms: bool) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=source == OF_BROKER,
        config_source=source,
        synonyms=[DescribeConfigsSynonym(name=name, value=value, source=source)] if with_synonyms else [],
        config_type=TYPES.get(name, STRING),
        documentation=None,
    )


def incremental_alter_configs_items(_call: Call, request: IncrementalAlterConfigsRequest) -> Items:
    """Return the topics a request names, for fault rules."""
    return [(asked.resource_name, -1) for asked in request.resources if asked.resource_type == TOPIC]


def incremental_alter_configs(call: Call, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
    """Alter the options of each topic, all of a topic's or none; those of brokers are fixed."""
    response = IncrementalAlterConfigsResponse()
    for asked in request.resources:
        result = AlterConfigsResourceResponse(
            resource_type=asked.resource_type, resource_name=asked.resource_name, error_message=None
        )
        try:
            _alter(call, asked, request.validate_only)
        except RefusalError as refusal:
            result.error_code, result.error_message = int(refusal.code), refusal.message
        response.responses.append(result)
    return response


def _alter(call: Call, asked: AlterConfigsResource, validate_only: bool) -> None:
    if asked.resource_type != TOPIC:
        raise RefusalError(ErrorCode.INVALID_REQUEST, "of a mock cluster only topics can be altered")
    topic = _topic(call, asked.resource_name)
    options = dict(topic.settings.options)
    for config in asked.configs:
        _change(options, config)
    settings = TopicSettings(options, topic.settings.defaults)
    try:
        settings.check()
    except ValueError as wrong:
        raise RefusalError(ErrorCode.INVALID_CONFIG, str(wrong)) from wrong
    if not validate_only:
        topic.settings = settings
        for partition in topic.partitions:
            partition.replicate()


def _change(options: dict[str, str], config: AlterableConfig) -> None:
    name, value = config.name, config.value
    if config.config_operation == DELETE:
        options.pop(name, None)
        return
    if value is None:
        raise RefusalError(ErrorCode.INVALID_CONFIG, f"Null value not supported for {name}")
    if config.config_operation == SET:
        options[name] = value
        return
    if config.config_operation not in (APPEND, SUBTRACT) or TYPES.get(name) != LIST:
        raise RefusalError(ErrorCode.INVALID_CONFIG, f"Config operation {config.config_operation} is not for {name}")
    present = [one for one in options.get(name, _defaults({})[name]).split(",") if one]
    named = value.split(",")
    if config.config_operation == APPEND:
        present += [one for one in named if one not in present]
    else:
        present = [one for one in present if one not in named]
    options[name] = ",".join(present)


def _topic(call: Call, name: str) -> Topic:
    call.refuse_by_script(name)
    topic = call.broker.state.topics.get(name)
    if topic is None:
        raise RefusalError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic
