"""`aiokprod perf`: throughput and latency, of aiokprod and of confluent-kafka beside it where that is installed.

With a rate, record n is due at n / rate seconds, whatever the cluster does meanwhile, and its latency counts from then: a pause
of the cluster counts for each record that was due in it, not only for the one that was on its way (coordinated omission).
"""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import click

from aiokprod.cli.common.connection import Connection, connection_options
from aiokprod.cli.common.parameter import FilePath, Number, Text
from aiokprod.cli.common.printing import print_json
from aiokprod.cli.common.running import line_of, run, tell
from aiokprod.cli.common.statuses import DONE, NOT_GOOD
from aiokprod.cli.common.topic_admin import TopicAdmin, check_topics
from aiokprod.cli.perf_plots import bars, name_of_share, percentile, shares_of, svg
from aiokprod.cluster.hosts import address_of
from aiokprod.config import ProducerConfig, Secret
from aiokprod.delivery_type import Delivery
from aiokprod.errors import AiokprodError, BufferFullError, ClusterError, ConfigError
from aiokprod.producer import Producer

OURS: Final = "aiokprod"
THEIRS: Final = "confluent-kafka"
PARTITIONS: Final = 6
LOOP_EVERY: Final = 200
STOP_S: Final = 0.2  # how soon the thread hears that it is stopped
SAME_NAME: Final = (
    "acks", "linger_ms", "batch_size", "compression_type", "enable_idempotence", "max_in_flight_requests_per_connection",
    "delivery_timeout_ms", "request_timeout_ms", "security_protocol", "sasl_mechanism", "sasl_username", "sasl_password",
    "client_id",
)  # fmt: skip
OTHER_NAME: Final = {
    "ssl_cafile": "ssl.ca.location", "ssl_certfile": "ssl.certificate.location", "ssl_keyfile": "ssl.key.location",
    "ssl_key_password": "ssl.key.password", "ssl_ca_pem": "ssl.ca.pem", "ssl_cert_pem": "ssl.certificate.pem",
    "ssl_key_pem": "ssl.key.pem",
}  # fmt: skip


@dataclass(slots=True)
class Measured:
    """The figures of one client."""

    client: str
    size: int
    acknowledged: int = 0
    failed: int = 0
    seconds: float = 0.0
    latencies_s: list[float] = field(default_factory=list[float])
    first_error: str | None = None

    @property
    def rate(self) -> float:
        """Acknowledged records per second."""
        return self.acknowledged / self.seconds if self.seconds else 0.0

    def fields(self) -> dict[str, Any]:
        """Return the figures for JSON."""
        ordered = sorted(self.latencies_s)
        return {
            "client": self.client,
            "acknowledged": self.acknowledged,
            "failed": self.failed,
            "seconds": round(self.seconds, 6),
            "records_per_s": round(self.rate, 1),
            "mib_per_s": round(self.rate * self.size / 2**20, 3),
            "latency_ms": {
                name_of_share(share): round(percentile(ordered, share) * 1000, 4) for share in shares_of(len(ordered))
            },
        }


@dataclass(frozen=True, slots=True)
class Load:
    """The records to send."""

    topic: str
    records: int
    value: bytes
    rate: float | None
    """records per second; None: as fast as they are taken"""


async def measure_ours(config: ProducerConfig, load: Load) -> Measured:
    """Send the load with aiokprod."""
    found = Measured(OURS, len(load.value))
    async with Producer(config) as producer:
        await producer.partitions_for(load.topic)
        clock = time.perf_counter if load.rate is None else asyncio.get_running_loop().time
        began = clock()

        def done_at(due: float) -> Callable[[Delivery], None]:
            def done(delivery: Delivery) -> None:
                error = delivery.exception()
                if error is None:
                    found.acknowledged += 1
                    found.latencies_s.append(clock() - due)
                else:
                    _failed(found, error)

            return done

        for number in range(load.records):
            if load.rate is None:
                due = clock()
                if number % LOOP_EVERY == 0:
                    await asyncio.sleep(0)
            else:
                due = began + number / load.rate
                ahead_s = due - clock()
                if ahead_s > 0:
                    await asyncio.sleep(ahead_s)
                elif number % LOOP_EVERY == 0:
                    await asyncio.sleep(0)
            while True:
                try:
                    delivery = producer.try_send(load.topic, load.value)
                except BufferFullError:
                    await producer.ready()
                    continue
                except AiokprodError as error:
                    _failed(found, error)
                else:
                    delivery.add_done_callback(done_at(due))
                break
        await producer.flush()
        found.seconds = clock() - began
    return found


def _failed(found: Measured, why: AiokprodError | str) -> None:
    found.failed += 1
    if not found.first_error:
        found.first_error = line_of(why) if isinstance(why, AiokprodError) else why


def options_of_librdkafka(config: ProducerConfig) -> dict[str, Any]:
    """Return the options of confluent-kafka that mean the same.

    Raises:
        ConfigError: an option cannot be given to it.
    """
    if config.ssl_context is not None or config.dialer is not None:
        raise ConfigError(f"ssl_context and dialer cannot be given to {THEIRS}")
    made: dict[str, Any] = {"bootstrap.servers": ",".join(address_of(*each) for each in config.bootstrap_addresses)}
    for ours, theirs in (*((name, name.replace("_", ".")) for name in SAME_NAME), *OTHER_NAME.items()):
        value = getattr(config, ours)
        if value is not None:
            made[theirs] = value.reveal() if isinstance(value, Secret) else value
    if not config.ssl_check_hostname:
        made["ssl.endpoint.identification.algorithm"] = "none"
    made["queue.buffering.max.kbytes"] = max(1, config.buffer_memory // 1024)
    made["queue.buffering.max.messages"] = 10_000_000
    return made


async def measure_theirs(config: ProducerConfig, load: Load) -> Measured:
    """Send the load with confluent-kafka, on a thread.

    Raises:
        ConfigError: it refuses an option.
        ClusterError: it does not reach the cluster.

    Cancellation: the thread ends at its next record.
    """
    theirs = import_module("confluent_kafka")
    options = options_of_librdkafka(config)
    stopped = threading.Event()
    try:
        return await asyncio.to_thread(_send_theirs, options, load, stopped)
    except theirs.KafkaException as error:
        why = error.args[0]
        is_of_option = why.code() == theirs.KafkaError._INVALID_ARG
        raise (ConfigError if is_of_option else ClusterError)(f"{THEIRS}: {why.str()}") from error
    finally:
        stopped.set()


def _send_theirs(options: dict[str, Any], load: Load, stopped: threading.Event) -> Measured:
    theirs = import_module("confluent_kafka")
    producer = theirs.Producer(options | {"log_level": 0})
    producer.list_topics(load.topic, timeout=30)
    found = Measured(THEIRS, len(load.value))
    clock = time.perf_counter

    def done_at(due: float) -> Callable[[Any, Any], None]:
        def done(error: Any, message: Any) -> None:
            if error is None:
                found.acknowledged += 1
                found.latencies_s.append(clock() - due)
            else:
                _failed(found, str(error))

        return done

    began = clock()
    for number in range(load.records):
        if stopped.is_set():
            break
        due = clock() if load.rate is None else began + number / load.rate
        while (ahead_s := due - clock()) > 0:
            producer.poll(ahead_s)
        while True:
            try:
                producer.produce(load.topic, load.value, on_delivery=done_at(due))
                break
            except BufferError:
                producer.poll(0.01)
            except theirs.KafkaException as error:
                _failed(found, str(error.args[0].str()))
                break
        if number % LOOP_EVERY == 0:
            producer.poll(0)
    while len(producer) and not stopped.is_set():
        producer.flush(STOP_S)
    if stopped.is_set():
        producer.purge()
    found.seconds = clock() - began
    return found


MEASURES: Final = {OURS: measure_ours, THEIRS: measure_theirs}


@click.command()
@click.argument("topic", required=False, type=Text())
@click.option(
    "-n",
    "--records",
    metavar="N",
    type=click.IntRange(1),
    default=100_000,
    show_default=True,
    help="Records per client.",
)
@click.option(
    "--size", metavar="N", type=click.IntRange(0, 100_000_000), default=100, show_default=True, help="Bytes of a value."
)
@click.option(
    "--rate",
    type=Number(0, min_open=True),
    metavar="N",
    help="Records per second; default: as fast as they are taken.",
)
@click.option(
    "--client",
    "clients",
    type=click.Choice(list(MEASURES)),
    multiple=True,
    help="Measure this one; may be repeated. Default: those that are installed.",
)
@click.option(
    "--svg",
    "picture",
    type=FilePath(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write the latencies as a picture.",
)
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per client.")
@connection_options
def perf(
    topic: str | None,
    records: int,
    size: int,
    rate: float | None,
    clients: Sequence[str],
    picture: Path | None,
    as_json: bool,
    connection: Connection,
) -> None:
    """Measure throughput and latency.

    Without TOPIC a topic is made and deleted afterwards. With --rate the latency of a record counts from when it was due, so
    that a pause of the cluster counts for every record in it. Without, records are sent as fast as they are taken, and the
    latency is mostly the time in a full buffer. All clients get the same options (-X linger.ms=..., -X acks=...), and run one
    after another.

    \b
    Examples:
      aiokprod perf --rate 5000 -n 100000 --svg latency.svg
      aiokprod perf --client aiokprod -X linger.ms=20 -X acks=1

    Exit status: 0; 1 some records failed; 2 not measured.
    """
    chosen = list(dict.fromkeys(clients)) or [OURS, *([THEIRS] if find_spec("confluent_kafka") else [])]
    if THEIRS in chosen and find_spec("confluent_kafka") is None:
        raise click.UsageError(f"{THEIRS} is not installed: pip install confluent-kafka")

    async def work() -> int:
        config = connection.config_to_send()
        if picture is not None:
            check_file(picture)  # before the minutes of a measurement
        found: list[Measured] = []
        async with AsyncExitStack() as stack:
            name = topic or f"aiokprod-perf-{uuid.uuid4().hex[:8]}"
            if topic is None:
                admin = await stack.enter_async_context(TopicAdmin(config, connection.timeout_s))
                await admin.create(name, PARTITIONS, -1, {})
                stack.push_async_callback(admin.delete, name)
            else:
                await check_topics(config, [topic], connection.timeout_s, "WRITE")
            load = Load(name, records, bytes(size), rate)
            for client in chosen:
                found.append(await MEASURES[client](config, load))
                _tell(found[-1], as_json)
            if picture is not None:
                pace = "as fast as taken" if rate is None else f"{rate:g} per second"
                title = f"{records:,} records of {size} bytes, {pace}"
                drawn = svg({each.client: each.latencies_s for each in found}, title)
                try:
                    picture.write_text(drawn, encoding="utf-8")  # noqa: ASYNC240 - nothing else runs any more
                except OSError as error:
                    error.filename = str(picture)
                    raise
        return NOT_GOOD if any(each.failed for each in found) else DONE

    run(work)


def check_file(path: Path) -> None:
    """Check that a file can be written; nothing is opened that is there, as it may be a pipe.

    Raises:
        OSError: it cannot.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if path.exists():
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return
    try:
        with tempfile.TemporaryFile(dir=Path(os.path.realpath(path)).parent):
            pass
    except OSError as error:
        error.filename = str(path)
        raise


def _tell(found: Measured, as_json: bool) -> None:
    if as_json:
        print_json(found.fields())
    else:
        mib = found.rate * found.size / 2**20
        click.echo(
            f"{found.client}: {found.acknowledged:,} records, {found.rate:,.0f} per second, {mib:.1f} MiB per second"
        )
        for line in bars(found.latencies_s):
            click.echo(line)
    if found.failed:
        tell(f"{found.client}: {found.failed:,} failed; the first: {found.first_error}")
