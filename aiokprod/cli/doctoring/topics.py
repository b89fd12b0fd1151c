"""One topic: does it exist, may this principal write to it, has it leaders and replicas, do its limits fit ours?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from typing import Final

from aiokprod.cli.common.connection import outside_transactions
from aiokprod.cli.common.topic_admin import BROKER, TOPIC, TopicAdmin
from aiokprod.cli.doctoring.finding import NOT_HERE, Finding, fine
from aiokprod.cli.doctoring.settings import listed
from aiokprod.config import ProducerConfig
from aiokprod.errors import (
    AiokprodError,
    BrokerRejectedError,
    DeliveryError,
    InvalidTopicError,
    TopicAuthorizationError,
)
from aiokprod.pipeline.sending.record_checks import RecordChecks
from aiokprod.producer import Producer
from aiokprod.wire.codes import ErrorCode, name_of
from aiokprod.wire.messages.describe_configs import DescribeConfigsResourceResult
from aiokprod.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from aiokprod.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

WRITE: Final = 4
"""the bit of AclOperation WRITE in a topic's authorized operations (KIP-430)"""
NOT_TOLD: Final = -(2**31)
STARTING: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE})
"""Answers of a broker that has just started: it asks the controller for its next producer ids."""
TINY_BYTES: Final = 10_000
"""below, a topic's max.message.bytes is rather a mistake than a limit that producers should keep to"""
BATCH_BYTES: Final = 70
"""what a batch with one record has beside its key, value and headers"""
KAFKAS_BYTES: Final = 1_048_588
"""Kafka's default of max.message.bytes"""
TRIES: Final = 15
PAUSE_S: Final = 0.2
Options = Mapping[str, DescribeConfigsResourceResult]


async def of_topic(admin: TopicAdmin, name: str) -> list[Finding]:
    """Examine a topic, without writing to it."""
    try:
        RecordChecks.checked_name(name)
    except InvalidTopicError as error:
        return [Finding("topic-name", error.message, "correct the name of the topic")]
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name)],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
    )
    answer: MetadataResponse = await admin.ask(request)
    [topic] = answer.topics
    code = topic.error_code
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return [await _missing(admin, name, answer)]
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return [_no_right(admin.config, name, "may not describe")]
    if code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return [
            Finding(
                "acl",
                f"this principal has no right on the cluster that is needed for topic {name!r}",
                f"kafka-acls.sh --add --allow-principal {_principal(admin.config)} --operation Describe --cluster",
            )
        ]
    if code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        return [Finding("topic-name", f"topic {name!r}: {name_of(code)}", "correct the name of the topic")]
    if code and not (code == ErrorCode.LEADER_NOT_AVAILABLE and topic.partitions):
        again = f"{NOT_HERE}: ask again in some seconds; if it stays so, the brokers' logs say why"
        return [Finding("topic-error", f"the brokers tell nothing about topic {name!r}: {name_of(code)}", again)]
    findings = list(_of_partitions(name, topic))
    if topic.topic_authorized_operations != NOT_TOLD and not topic.topic_authorized_operations >> WRITE & 1:
        findings.append(_no_right(admin.config, name, "may not write to"))
    try:
        options = await admin.options(TOPIC, name)
    except AiokprodError as error:
        findings.append(Finding("options-hidden", error.message, "", is_trouble=False))
    else:
        findings += _of_options(admin.config, name, topic, options)
    if not any(each.is_trouble for each in findings):
        count = len(topic.partitions)
        led = "1 partition, with a leader" if count == 1 else f"{count} partitions, each with a leader"
        findings.append(fine("topic", f"topic {name!r}: {led}"))
    return findings


async def _missing(admin: TopicAdmin, name: str, answer: MetadataResponse) -> Finding:
    creates: str | None = None
    try:
        broker = answer.brokers[0].node_id
        creates = (await admin.options(BROKER, str(broker), broker))["auto.create.topics.enable"].value
    except (AiokprodError, LookupError):
        pass  # needs DESCRIBE_CONFIGS on the cluster
    command = f"aiokprod topics create {name} --yes"
    near = await admin.near(name)
    if near is not None:
        command = f"write {near} instead of {name}, or: {command}"
    if creates == "true" and admin.config.allow_auto_create_topics:
        return Finding(
            "topic-missing",
            f"topic {name!r} does not exist; the brokers will create it at the first record",
            command,
            is_trouble=False,
        )
    why = {"false": " (auto.create.topics.enable=false)", None: ""}.get(
        creates, " (allow.auto.create.topics=false here)"
    )
    return Finding("topic-missing", f"topic {name!r} does not exist, and is not created by a record{why}", command)


def _principal(config: ProducerConfig) -> str:
    return f"User:{config.sasl_username}" if config.sasl_username else "User:..."


def _no_right(config: ProducerConfig, name: str, what: str) -> Finding:
    return Finding(
        "acl",
        f"this principal {what} topic {name!r}",
        f"kafka-acls.sh --add --allow-principal {_principal(config)} --operation Write --operation Describe --topic"
        f" {name}",
    )


def _of_partitions(name: str, topic: MetadataResponseTopic) -> Iterator[Finding]:
    without = sorted(each.partition_index for each in topic.partitions if each.leader_id < 0)
    if without:
        nodes = sorted({node for each in topic.partitions if each.leader_id < 0 for node in each.replica_nodes})
        yield Finding(
            "no-leader",
            f"topic {name!r} has partitions without a leader: {listed(without)}",
            f"start broker {listed(nodes)}  (the replicas are there)",
        )


def _of_options(config: ProducerConfig, name: str, topic: MetadataResponseTopic, options: Options) -> Iterator[Finding]:
    least = _number(options, "min.insync.replicas")
    replicas = min((len(each.replica_nodes) for each in topic.partitions), default=0)
    if least is not None and config.required_acks == -1:
        behind = [each for each in topic.partitions if each.leader_id >= 0 and len(each.isr_nodes) < least]
        if least > replicas:
            yield Finding(
                "min-insync",
                f"topic {name!r} has {replicas} replicas, and min.insync.replicas is {least}: no record can be acknowledged",
                f"{_altered(name, 'min.insync.replicas', max(1, replicas - 1))}  (or give it more replicas, with"
                " kafka-reassign-partitions.sh)",
            )
        elif behind:
            missing = sorted({node for each in behind for node in each.replica_nodes if node not in each.isr_nodes})
            yield Finding(
                "replicas-behind",
                f"topic {name!r}: {_partitions_have(len(behind))} fewer than min.insync.replicas={least} replicas in sync",
                f"start broker {listed(missing)}  (or wait until it has caught up)",
            )
        elif least == replicas > 1:
            yield Finding(
                "min-insync",
                f"topic {name!r} has {replicas} replicas, and min.insync.replicas is {least}: no record is acknowledged while"
                " one of these brokers is away, as when it is restarted",
                _altered(name, "min.insync.replicas", replicas - 1),
                is_trouble=False,
            )
    largest = _number(options, "max.message.bytes")
    if largest is not None and largest < TINY_BYTES and config.max_request_size > largest:
        yield Finding(
            "message-size",
            f"topic {name!r} takes batches of at most {largest} bytes (max.message.bytes), of which a batch with one record has"
            f" some {BATCH_BYTES} for itself: most records are refused",
            f"{_altered(name, 'max.message.bytes', KAFKAS_BYTES)}  (Kafka's default)",
        )
    elif largest is not None and config.max_request_size > largest:
        # A batch that is too large is divided; a record between the two sizes is refused.
        also = f" and batch.size={largest}" if config.batch_size > largest else ""
        yield Finding(
            "message-size",
            f"max.request.size is {config.max_request_size}, and topic {name!r} takes batches of at most {largest} bytes"
            " (max.message.bytes)",
            f"max.request.size={largest}{also}  (or: {_altered(name, 'max.message.bytes', config.max_request_size)})",
        )


def _altered(name: str, option: str, value: object) -> str:
    """Return the command that gives a topic this option."""
    return f"aiokprod topics alter {name} -o {option}={value} --yes"


def _partitions_have(count: int) -> str:
    return "1 partition has" if count == 1 else f"{count} partitions have"


def _number(options: Options, name: str) -> int | None:
    found = options.get(name)
    return int(found.value) if found is not None and found.value is not None and found.value.isdecimal() else None


async def of_identity(admin: TopicAdmin) -> list[Finding]:
    """Ask for a producer id, as an idempotent producer does at its start."""
    if not admin.config.idempotent or admin.config.transactional_id is not None:
        return []
    answer: InitProducerIdResponse = await admin.ask(InitProducerIdRequest(transactional_id=None))
    for _ in range(TRIES):
        if answer.error_code not in STARTING:
            break
        await asyncio.sleep(PAUSE_S)
        answer = await admin.ask(InitProducerIdRequest(transactional_id=None))
    if answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return [
            Finding(
                "acl-idempotent",
                "this principal may not use an idempotent producer (no WRITE on any topic, no IDEMPOTENT_WRITE)",
                "kafka-acls.sh --add --allow-principal User:... --operation IdempotentWrite --cluster",
            )
        ]
    if answer.error_code:
        return [
            Finding(
                "producer-id",
                f"no producer id is given: {name_of(answer.error_code)}",
                f"enable.idempotence=false  (until the brokers give one: {NOT_HERE}, and records may then come twice)",
            )
        ]
    return []


async def of_record(config: ProducerConfig, name: str, timeout_s: float) -> list[Finding]:
    """Send a record with a header `aiokprod-doctor`, and say why it fails, if it does."""
    timeout_ms = round(timeout_s * 1000)
    quick = outside_transactions(config, is_told=False).replace(
        linger_ms=0,
        request_timeout_ms=max(1, timeout_ms // 2),
        delivery_timeout_ms=max(2, timeout_ms),
        max_block_ms=timeout_ms,
    )
    try:
        async with Producer(quick) as producer:
            sent_ms = time.time_ns() // 1_000_000
            metadata = await producer.send(name, b"", headers=(("aiokprod-doctor", b"1"),))
    except TopicAuthorizationError:
        return [_no_right(config, name, "may not write to")]
    except BrokerRejectedError as error:
        if error.code == ErrorCode.INVALID_TIMESTAMP:
            return [_clock(f"the broker refuses this machine's time ({error.message})")]
        return [Finding("record-refused", error.message, _change_of_refusal(error, name))]
    except DeliveryError as error:
        return [
            Finding(
                "record-failed", f"{error.message} ({error.__cause__ or 'no cause is known'})", _more_time(timeout_s)
            )
        ]
    skew_s = abs(metadata.timestamp - sent_ms) / 1000 if metadata.timestamp is not None else 0.0
    if skew_s > CLOCK_S:
        return [_clock(f"the broker's clock and this machine's are {skew_s:.0f} s apart")]
    return [fine("record", f"a record was acknowledged: {name}-{metadata.partition}@{metadata.offset}")]


def _change_of_refusal(error: BrokerRejectedError, name: str) -> str:
    if "compact" in error.message.lower():  # INVALID_RECORD has other causes too
        return (
            f"{_altered(name, 'cleanup.policy', 'delete')}  (or send records with keys only: a compacted topic takes no other,"
            " and the one of --send has none)"
        )
    return f"{NOT_HERE}: a rule of the brokers refuses the record, and has to be changed there"


def _more_time(timeout_s: float) -> str:
    return (
        f"--timeout {4 * timeout_s:g}  (if the brokers are only slow; else {NOT_HERE}, and the brokers' logs say why)"
    )


CLOCK_S: Final = 30.0
"""more than a slow delivery"""


def _clock(what: str) -> Finding:
    return Finding("clock-skew", what, "timedatectl set-ntp true  (on the machine whose clock is wrong)")
