"""From the options of a Spark write to a `ProducerConfig` and the options of the sink itself. Pure.

Spark passes names in lower case and values as texts. `kafka.*` are options of the producer under any name that
`ProducerConfig.from_mapping` reads (milliseconds and bytes, as in Kafka). docs/spark.md has the table.

Invariant: an object of this class is valid, can be pickled, and shows no secret.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Self

from aiokprod.config import ProducerConfig
from aiokprod.config.jaas import credentials
from aiokprod.config.option_texts import BOOLEANS
from aiokprod.errors import ConfigError
from aiokprod.spark.exactly_once.settings import NAMES as EXACTLY_ONCE_NAMES
from aiokprod.spark.exactly_once.settings import TRANSACTION_TIMEOUT_MS, ExactlyOnce, read_settings

DEFAULT_IN_FLIGHT_BYTES: Final = 33_554_432  # as the buffer.memory of Kafka's producers
DEFAULT_BATCH_SIZE: Final = (
    524_288  # half of a broker's limit; eight times the core's default, as rows arrive in large batches
)
_SIZES: Final = (
    "batch_size",
    "max_batch_size",
    "max_request_size",
    "message_max_bytes",
)  # given explicitly, it is not overridden
DEFAULT_IDLE_TIMEOUT_MS: Final = 30_000  # Spark ends an idle worker after about 60 s
_NAMES: Final = (
    "kafka.bootstrap.servers",
    "topic",
    "includeHeaders",
    "maxInFlightBytes",
    "idleTimeoutMs",
    "claims.path",
    *EXACTLY_ONCE_NAMES,
)
# Options that Spark and its users pass to every sink, without meaning here. `batchid` comes from `write_each_batch`.
_SPARKS: Final = (
    "checkpointlocation", "queryname", "includeheaders", "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms", "batchid",
)  # fmt: skip
_START: Final = "a task waits for the cluster for kafka.max.block.ms"
_CLOSE: Final = "a producer is closed when every row has been acknowledged, so there is nothing to wait for"
_NO_TOKENS: Final = (
    "tokens come from a Python function, which options cannot carry to Spark's workers: use a listener with SCRAM, PLAIN or"
    " client certificates, or write with foreachPartition and a Producer made there"
)
_TOKENS: Final = ("OAUTHBEARER", "AWS_MSK_IAM")
_REFUSED: Final = {
    "path": "there is no path: name the topic with .option('topic', ...) and end with .save() or .start()",
    "kafka.transactional.id": "each task needs an id of its own: set delivery to exactly_once, and sinkId to name the ids",
    "kafka.transactional_id": "each task needs an id of its own: set delivery to exactly_once, and sinkId to name the ids",
    "kafka.key.serializer": "rows bring bytes: cast the column 'key' to string or binary",
    "kafka.value.serializer": "rows bring bytes: cast the column 'value' to string or binary",
    "kafka.key_serializer": "rows bring bytes: cast the column 'key' to string or binary",
    "kafka.value_serializer": "rows bring bytes: cast the column 'value' to string or binary",
    "kafka.interceptors": "interceptors cannot be options: change the columns instead",
    "kafka.on_delivery_error": "a row that is not delivered fails its task",
    "kafka.start.timeout.ms": _START, "kafka.start_timeout_ms": _START,
    "kafka.close.timeout.ms": _CLOSE, "kafka.close_timeout_ms": _CLOSE,
    "kafka.sasl_oauth_token_provider": _NO_TOKENS, "kafka.sasl.oauth.token.provider": _NO_TOKENS,
    "kafka.dialer": "it is an object, but options are texts",
    "kafka.ssl_context": "it is an object, but options are texts: give the files or PEM texts (kafka.ssl.ca.location, ...)",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class SinkOptions:
    """The options of one write.

    Args:
        topic: of all rows; None takes it from the column `topic`.
        max_in_flight_bytes: of one task: rows passed to the producer and not acknowledged yet.
        idle_timeout_s: how long a worker keeps its connections after the last task.
        claims_path: the folder for the Parquet file of each commit; None for none.
        batch_id: the one that `write_each_batch` passes on.
        exactly_once: how rows are written exactly once; None writes them at least once.
    """

    config: ProducerConfig
    topic: str | None = None
    max_in_flight_bytes: int = DEFAULT_IN_FLIGHT_BYTES
    idle_timeout_s: float = DEFAULT_IDLE_TIMEOUT_MS / 1000
    claims_path: str | None = None
    batch_id: int | None = None
    exactly_once: ExactlyOnce | None = None

    def __repr__(self) -> str:
        return f"SinkOptions(topic={self.topic!r}, servers={self.config.bootstrap_servers!r}, ...)"

    @classmethod
    def read(cls, given: Mapping[str, str], *, is_stream: bool = False, job_id: str = "") -> Self:
        """Read and check the options of a write.

        Args:
            given: the options; names in any case.
            is_stream: `writeStream`, not a batch job.
            job_id: a new name, for a batch job that is written exactly once and has no `txnAppId`.

        Raises:
            ConfigError: an option is missing, unknown (the nearest is named), has no meaning here (why), or a bad value.
        """
        options = {name.lower(): value for name, value in given.items()}
        for name in options:
            if name in _REFUSED:
                raise ConfigError(f"option {name!r} has no meaning here: {_REFUSED[name]}")
            if not name.startswith("kafka.") and name not in _SPARKS and name not in map(str.lower, _NAMES):
                raise _unknown(name)
        if "kafka.bootstrap.servers" not in options and "kafka.bootstrap_servers" not in options:
            raise ConfigError("option 'kafka.bootstrap.servers' is missing: give at least one host:port")
        include = options.get("includeheaders", "true").strip().lower()
        if (
            include not in BOOLEANS
        ):  # a valid value changes nothing: a column of headers is always written, as by Spark's own sink
            raise ConfigError(f"includeHeaders is {include!r}: it must be true or false")
        batch_id = _whole(options, "batchId", -1, 0)
        topic = _topic(options.get("topic"))
        exactly_once = read_settings(
            options, topic, is_stream=is_stream, job_id=job_id, batch_id=None if batch_id < 0 else batch_id
        )
        properties = {name[6:]: value for name, value in options.items() if name.startswith("kafka.")}
        return cls(
            config=_producer_config(properties, None if exactly_once is None else exactly_once.sink),
            topic=topic,
            max_in_flight_bytes=_whole(options, "maxInFlightBytes", DEFAULT_IN_FLIGHT_BYTES, 65_536, 2**30),
            idle_timeout_s=_whole(options, "idleTimeoutMs", DEFAULT_IDLE_TIMEOUT_MS, 0) / 1000,
            claims_path=options.get("claims.path") or None,
            batch_id=None if batch_id < 0 else batch_id,
            exactly_once=exactly_once,
        )


def _unknown(name: str) -> ConfigError:
    known = {each.lower(): each for each in _NAMES}
    config = [f"kafka.{each.replace('_', '.')}" for each in ProducerConfig.names()]
    near = get_close_matches(name, [*known, *config], 1, 0.6) or get_close_matches(f"kafka.{name}", config, 1, 0.6)
    advice = f"did you mean {known.get(near[0], near[0])!r}?" if near else "docs/spark.md lists the options"
    return ConfigError(f"unknown option {name!r}: {advice}")


def _topic(topic: str | None) -> str | None:
    if topic is not None and not topic.strip():
        raise ConfigError("option 'topic' is empty: name a topic, or leave the option out and have a column 'topic'")
    return topic


def _whole(options: Mapping[str, str], name: str, default: int, least: int, most: int = 2**62) -> int:
    text = options.get(name.lower())
    if text is None:
        return default
    if not re.fullmatch(r"\s*\d{1,18}\s*", text) or not least <= int(text) <= most:
        raise ConfigError(f"{name} is {text!r}: it must be a whole number from {least} to {most}")
    return int(text)


def _producer_config(properties: dict[str, str], sink: str | None) -> ProducerConfig:
    """Return the options of the producer. `sink` is the sink id of exactly-once writes, whose tasks are transactional."""
    for name in ("sasl.mechanism", "sasl.mechanisms", "sasl_mechanism"):
        if (mechanism := properties.get(name, "").strip()) in _TOKENS:
            raise ConfigError(f"kafka.{name} cannot be {mechanism} here: {_NO_TOKENS}")
    jaas = properties.pop("sasl.jaas.config", "")
    if jaas.strip():
        properties = credentials(jaas, "kafka.") | properties
    if not any(name.replace(".", "_") in _SIZES for name in properties):
        properties = properties | {"batch.size": str(DEFAULT_BATCH_SIZE)}
    if sink is not None:
        if not any(name.replace(".", "_") == "transaction_timeout_ms" for name in properties):
            properties = properties | {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}
        properties = properties | {"transactional.id": sink}
    try:
        config = ProducerConfig.from_mapping(properties)
    except ConfigError as error:
        raise ConfigError(_in_our_names(error.message, properties)) from None
    if config.required_acks == 0:
        raise ConfigError(
            "kafka.acks is 0: a task ends when its rows are acknowledged, and brokers would not acknowledge any: use all or 1"
        )
    if config.max_block_ms == 0:
        raise ConfigError(
            "kafka.max.block.ms is 0: no task could connect, as each waits for the cluster as long as this option says"
        )
    return config


def _in_our_names(message: str, properties: Mapping[str, str]) -> str:
    """Rename the options in the core's error, from `linger.ms` to `kafka.linger.ms`."""
    ours = {name: name.replace("_", ".") for name in ProducerConfig.names()}
    names = {name: name for name in (*ours.values(), *properties)} | ours

    def prefixed(match: re.Match[str]) -> str:
        return f"'kafka.{names[match[1]]}'" if match[1] in names else match[0]

    message = re.sub(r"'([a-z][a-z0-9._]*)'", prefixed, message)
    message = in_spark_names(re.sub(r"was given as (?=[a-z])", "was given as kafka.", message))
    return f"kafka.{message}" if message.startswith(tuple(f"{name} is " for name in properties)) else message


_CORE_NAMES: Final = re.compile(
    rf"(?<![\w.])({'|'.join(name for name in ProducerConfig.names() if '_' in name)})(?!\w)"
)


def in_spark_names(text: str) -> str:
    """Rename the options in a text of the core, from `max_block_ms` to `kafka.max.block.ms`.

    Options whose names are single words, such as `acks`, are left: a text may mean something else by them.
    """
    return _CORE_NAMES.sub(lambda match: f"kafka.{match[1].replace('_', '.')}", text)
