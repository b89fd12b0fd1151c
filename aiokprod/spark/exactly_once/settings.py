"""The options of exactly-once writes: `delivery`, `sinkId`, `markerTopic`, `txnAppId`, ... Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from aiokprod.config.option_texts import BOOLEANS
from aiokprod.errors import ConfigError
from aiokprod.spark.exactly_once.facts import name_of_query
from aiokprod.spark.exactly_once.protocol import BatchName

DELIVERIES: Final = ("at_least_once", "exactly_once")
NAMES: Final = (
    "delivery",
    "sinkId",
    "markerTopic",
    "onReplayMismatch",
    "onMissingFacts",
    "txnAppId",
    "txnVersion",
)
"""The options of this module."""
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""The longest that brokers allow, unless transaction.max.timeout.ms is raised: a batch has to end within it."""
DEFAULT_SINK: Final = "aiokprod"
_TRUE: Final = tuple(text for text, is_true in BOOLEANS.items() if is_true)
NEEDED: Final = {
    "kafka.acks": ("all", "-1"),
    "kafka.enable.idempotence": _TRUE,
}
"""Options of the producer that a transaction leaves one value: each with the texts of that value."""
SINK_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
LAST_VERSION: Final = 2**62
DIGITS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactlyOnce:
    """The settings of one write.

    Args:
        sink: names the transactional ids and groups.
        topic: of whose partitions offsets are committed, as markers.
        may_duplicate: a partly committed batch whose rows have moved is written again.
        may_skip: a finished batch that has another number of rows in a replay is skipped.
        may_lack_facts: a batch about which nothing is recorded is written.
        needs_facts: a batch with a number above 0 is refused if nothing is recorded about its query.
        job: name of a batch job; None for a stream, whose batches Spark names.
    """

    sink: str
    topic: str
    may_duplicate: bool = False
    may_skip: bool = False
    may_lack_facts: bool = False
    needs_facts: bool = True
    job: BatchName | None = None


def read_settings(
    options: Mapping[str, str], topic: str | None, *, is_stream: bool, job_id: str, batch_id: int | None
) -> ExactlyOnce | None:
    """Read the options of exactly-once writes; None: rows are written at least once.

    Args:
        options: by their names in lower case.
        topic: of all rows; None takes it from the column.
        is_stream: `writeStream`, not a batch job.
        job_id: a new name, for a batch job without `txnAppId`.
        batch_id: of `foreachBatch`, as `write_each_batch` passes it.

    Raises:
        ConfigError: an option is missing, has a bad value, or means nothing beside the others.
    """
    if _choice(options, "delivery", DELIVERIES) == "at_least_once":
        given = [name for name in NAMES if name != "delivery" and name.lower() in options]
        if given:
            raise ConfigError(f"option {given[0]!r} means something with .option('delivery', 'exactly_once') only")
        return None
    if options.get("asyncprogresstrackingenabled", "false").strip().lower() in _TRUE:
        raise ConfigError(
            "asyncProgressTrackingEnabled excludes delivery=exactly_once: more than the last batch could be written again"
        )
    for name, wanted in NEEDED.items():
        value = options.get(name)
        if value is not None and value.strip().lower() not in wanted:
            raise ConfigError(
                f"{name} is {value!r}, but delivery=exactly_once needs {wanted[0]}: leave it out, or choose at_least_once"
            )
    marker_topic = options.get("markertopic", topic or "").strip()
    if not marker_topic:
        raise ConfigError(
            "option 'markerTopic' is missing: rows name their topics, so name one topic in whose partitions offsets are"
            " committed, as markers; nothing is written to it"
        )
    sink = options.get("sinkid")
    if sink is not None and not SINK_ID.fullmatch(sink):
        raise ConfigError(f"sinkId is {sink!r}: it must have 1 to 100 letters, digits, '_' and '-'")
    job = _job(options, is_stream=is_stream, job_id=job_id, batch_id=batch_id)
    # Batches of a stream count from 0, those of `write_each_batch` too; the first number of a job may be any, a date, say.
    counts_from_0 = is_stream or (batch_id is not None and "txnversion" not in options)
    missing = _choice(options, "onMissingFacts", ("fail", "write") if counts_from_0 else ("write", "fail"))
    mismatch = _choice(options, "onReplayMismatch", ("fail", "duplicate", "skip"))
    return ExactlyOnce(
        sink=_stream_sink(options, sink) if job is None else f"{sink or DEFAULT_SINK}-{job.query[:DIGITS]}",
        topic=marker_topic,
        may_duplicate=mismatch == "duplicate",
        may_skip=mismatch == "skip",
        may_lack_facts=missing == "write" and "onmissingfacts" in options,
        needs_facts=missing == "fail",
        job=job,
    )


def _choice(options: Mapping[str, str], name: str, values: tuple[str, ...]) -> str:
    value = options.get(name.lower(), values[0]).strip().lower()
    if value not in values:
        raise ConfigError(f"{name} is {value!r}: it must be {', '.join(values[:-1])} or {values[-1]}")
    return value


def _stream_sink(options: Mapping[str, str], sink: str | None) -> str:
    if sink is not None:
        return sink
    # As Spark hands it over, which is as it was written. It has no normal form here: `/x` is in the file system that Hadoop's
    # configuration names, which this process does not know. Other spellings are other names, which running queries keep.
    checkpoint = options.get("checkpointlocation", "").strip().rstrip("/")
    if not checkpoint:
        raise ConfigError(
            "option 'sinkId' is missing: with delivery=exactly_once each query needs a name of its own that it keeps, or the"
            " option 'checkpointLocation', of which one is made"
        )
    return f"{DEFAULT_SINK}-{sha256(checkpoint.encode()).hexdigest()[:DIGITS]}"


def _job(options: Mapping[str, str], *, is_stream: bool, job_id: str, batch_id: int | None) -> BatchName | None:
    """Return the name of a batch job; None for a stream."""
    application, version = options.get("txnappid"), options.get("txnversion")
    if is_stream:
        if application is not None or version is not None:
            raise ConfigError(
                "txnAppId and txnVersion are for batch jobs and foreachBatch: a stream has its own numbers"
            )
        return None
    if application is None:
        if version is not None:
            raise ConfigError("txnVersion is given without txnAppId: give both, or none")
        if batch_id is not None:
            raise ConfigError(
                "option 'txnAppId' is missing: in foreachBatch a batch is written again after a failure, which is found out by"
                " txnAppId, a name that the query keeps, and the number of the batch"
            )
        return BatchName(name_of_query(job_id), 0)
    if not application.strip():
        raise ConfigError("txnAppId is empty: give a name that the application keeps")
    if version is None and batch_id is None:
        raise ConfigError("txnAppId is given without txnVersion: give a number that grows from job to job")
    if version is not None and (not re.fullmatch(r"\s*\d{1,18}\s*", version) or int(version) > LAST_VERSION):
        raise ConfigError(f"txnVersion is {version!r}: it must be a whole number, not negative")
    number = batch_id if version is None else int(version)
    assert number is not None
    return BatchName(name_of_query(application), number)
