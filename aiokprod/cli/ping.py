"""`aiokprod ping`: each broker is asked for an answer, and timed."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import click

from aiokprod.cli.common.connection import Connection, connection_options
from aiokprod.cli.common.parameter import Number
from aiokprod.cli.common.printing import print_json, print_table
from aiokprod.cli.common.running import line_of, run, tell
from aiokprod.cli.common.statuses import DONE, NOT_GOOD
from aiokprod.cli.common.texts import printable
from aiokprod.cli.common.topic_admin import TopicAdmin
from aiokprod.cli.perf_plots import percentile
from aiokprod.cluster.hosts import address_of
from aiokprod.errors import ClusterError, ProtocolError
from aiokprod.wire.messages.metadata import MetadataRequest, MetadataResponseBroker


@dataclass(slots=True)
class Broker:
    """A broker, and the answers of it."""

    found: MetadataResponseBroker
    connect_s: float | None = None
    round_trips_s: list[float] = field(default_factory=list[float])
    error: str | None = None


@click.command()
@click.option(
    "-n", "--count", metavar="N", type=click.IntRange(1), default=5, show_default=True, help="Round trips per broker."
)
@click.option(
    "--interval",
    metavar="SECONDS",
    type=Number(0),
    default=0.0,
    show_default=True,
    help="Time between two round trips.",
)
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON object per broker.")
@connection_options
def ping(count: int, interval: float, as_json: bool, connection: Connection) -> None:
    """Ask each broker for an answer, and time it.

    The time to connect has DNS, TCP, TLS, SASL and the agreement on versions in it; a round trip is an empty metadata request.

    Exit status: 0 every broker answered; 1 some did not; 2 no cluster was found.
    """

    async def work() -> int:
        async with TopicAdmin(connection.config(), connection.timeout_s) as admin:
            cluster = await admin.metadata()
            brokers = [Broker(each) for each in sorted(cluster.brokers, key=lambda each: each.node_id)]
            await asyncio.gather(*(_ask(admin, each, count, interval) for each in brokers))
        if not as_json:
            click.echo(f"cluster {printable(cluster.cluster_id)}, controller {cluster.controller_id}")
        _print(brokers, as_json)
        for each in brokers:
            if each.error is not None:
                tell(f"broker {each.found.node_id} did not answer: {each.error}")
        return NOT_GOOD if any(each.error is not None for each in brokers) else DONE

    run(work)


async def _ask(admin: TopicAdmin, broker: Broker, count: int, interval: float) -> None:
    try:
        began = time.perf_counter()
        await admin.ask(MetadataRequest(topics=[]), broker.found.node_id)
        first_s = time.perf_counter() - began
        for number in range(count):
            if number and interval:
                await asyncio.sleep(interval)
            began = time.perf_counter()
            await admin.ask(MetadataRequest(topics=[]), broker.found.node_id)
            broker.round_trips_s.append(time.perf_counter() - began)
        broker.connect_s = max(0.0, first_s - min(broker.round_trips_s))
    except (ClusterError, ProtocolError) as error:
        broker.error = line_of(error)


def _print(brokers: list[Broker], as_json: bool) -> None:
    if as_json:
        for each in brokers:
            times = each.round_trips_s
            print_json(
                {
                    "broker": each.found.node_id,
                    "host": each.found.host,
                    "port": each.found.port,
                    "rack": each.found.rack,
                    "connect_ms": None if each.connect_s is None else round(each.connect_s * 1000, 3),
                    "round_trip_ms": [round(one * 1000, 3) for one in times],
                    "error": each.error,
                }
            )
        return
    rows = [
        (
            each.found.node_id,
            address_of(each.found.host, each.found.port),
            each.found.rack or "-",
            _ms(each.connect_s),
            _ms(min(each.round_trips_s, default=None)),
            _ms(percentile(sorted(each.round_trips_s), 0.5) if each.round_trips_s else None),
            _ms(max(each.round_trips_s, default=None)),
        )
        for each in brokers
    ]
    print_table(("BROKER", "ADDRESS", "RACK", "CONNECT MS", "LEAST MS", "MEDIAN MS", "MOST MS"), rows)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.2f}"
