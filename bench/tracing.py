"""The cost of tracing for a stream of small records: `python bench/tracing.py --servers HOST:PORT`.

    plain        a producer without interceptors
    no SDK       with open_telemetry(), and no provider of spans
    1 %          sample=0.01, all spans recorded and exported to nothing
    1 %, no bound  the same with most_per_second=1e9
    1 %, SDK alone  a producer without interceptors; the program begins and ends a tiny span for each hundredth record
    1 %, by hand  the same with the span that open_telemetry() makes: its attributes, its header, its end behind the outcome
    sampler 1 %  sample=1, and a sampler of the SDK that takes 1 %
    all          sample=1, each record has a span

Each takes a turn per round, in a process of its own, with values of 100 bytes. Printed are the
medians: records per second, processor time per record, and both against plain (above 1 is better). Without --servers, a real
broker is started, which has a processor of its own, as the client has, where the machine has two.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import aiokprod

TOPIC = "bench-tracing"
VALUE = bytes(100)
WARM_UP = 100_000
ALONE = "1 %, SDK alone"
BY_HAND = "1 %, by hand"
ONE_IN = 100


def provider_to_nowhere(ratio: float) -> Any:
    """Return an SDK whose sampler takes this share, and whose spans go nowhere."""
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
    from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

    class ToNowhere(SpanExporter):
        def export(self, spans: Any) -> SpanExportResult:
            return SpanExportResult.SUCCESS

    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)))
    provider.add_span_processor(BatchSpanProcessor(ToNowhere()))
    return provider


def traced(ratio: float, **options: Any) -> list[Any]:
    """Return the interceptors."""
    from aiokprod.integrations.opentelemetry import open_telemetry

    return open_telemetry(tracer_provider=provider_to_nowhere(ratio), **options)


def without_sdk() -> list[Any]:
    from aiokprod.integrations.opentelemetry import open_telemetry

    return open_telemetry()


WAYS: dict[str, Callable[[], list[Any]]] = {
    "plain": list,
    "no SDK": without_sdk,
    "1 %": lambda: traced(1.0, sample=0.01),
    "1 %, no bound": lambda: traced(1.0, sample=0.01, most_per_second=1e9),
    ALONE: list,
    BY_HAND: list,
    "sampler 1 %": lambda: traced(0.01),
    "all": lambda: traced(1.0),
}


class SpansByHand:
    """Spans with all that the conventions ask, made by the program itself: what any client has to leave to the SDK."""

    def __init__(self) -> None:
        from opentelemetry.propagate import get_global_textmap
        from opentelemetry.trace import SpanKind, set_span_in_context

        self._tracer = provider_to_nowhere(1.0).get_tracer("bench")
        self._inject, self._kind, self._in_context = get_global_textmap().inject, SpanKind.PRODUCER, set_span_in_context
        self._span: Any = None
        self._open: deque[tuple[Any, aiokprod.Delivery]] = deque()

    def begin(self) -> list[tuple[str, bytes]]:
        """Begin the span of the next record; its headers."""
        self._span = span = self._tracer.start_span(
            f"send {TOPIC}",
            kind=self._kind,
            attributes={
                "messaging.system": "kafka",
                "messaging.operation.name": "send",
                "messaging.operation.type": "send",
                "messaging.destination.name": TOPIC,
                "messaging.client.id": "aiokprod",
                "messaging.message.body.size": len(VALUE),
            },
        )
        carrier: dict[str, str] = {}
        self._inject(carrier, self._in_context(span))
        return [(name, text.encode()) for name, text in carrier.items()]

    def sent(self, delivery: aiokprod.Delivery) -> None:
        """Note the Delivery of the record."""
        self._open.append((self._span, delivery))
        self.end_settled()

    def end_settled(self) -> None:
        """End the spans of the first records that have their outcome."""
        while self._open and self._open[0][1].done():
            span, settled = self._open.popleft()
            metadata = settled.result()
            span.set_attributes(
                {
                    "aiokprod.attempts": 1,
                    "messaging.destination.partition.id": str(metadata.partition),
                    "messaging.kafka.offset": metadata.offset,
                    "server.address": "127.0.0.1",
                    "server.port": 9092,
                    "messaging.kafka.cluster.id": "a cluster",
                }
            )
            span.end()


async def turn(servers: str, way: str, count: int) -> dict[str, float]:
    from aiokprod import Producer

    alone = provider_to_nowhere(1.0).get_tracer("bench") if way == ALONE else None
    by_hand = SpansByHand() if way == BY_HAND else None

    async with Producer(servers, interceptors=WAYS[way]()) as producer:
        await producer.partitions_for(TOPIC)

        async def stream(records: int) -> None:
            send, ready = producer.send, producer.ready
            for hundred in range(0, records, ONE_IN):
                if not hundred % 1_000:
                    await ready()
                if alone is not None:
                    alone.start_span("send", attributes={"messaging.system": "kafka"}).end()
                if by_hand is not None:
                    headers = by_hand.begin()
                    by_hand.sent(send(TOPIC, VALUE, headers=headers))
                else:
                    send(TOPIC, VALUE)
                for _ in range(ONE_IN - 1):
                    send(TOPIC, VALUE)
            await producer.flush()
            if by_hand is not None:
                by_hand.end_settled()

        await stream(min(WARM_UP, count))
        began, processor = time.perf_counter(), time.process_time()
        await stream(count)
        return {
            "rate": count / (time.perf_counter() - began),
            "cpu_us": (time.process_time() - processor) / count * 1e6,
        }


def child(servers: str, way: str, count: int, core: int | None) -> dict[str, float]:
    command = [sys.executable, __file__, "--servers", servers, "--records", str(count), "--way", way]
    if core is not None:
        command += ["--core", str(core)]
    environment = os.environ | {"PYTHONPATH": str(Path(aiokprod.__file__).parents[1])}  # the form that this process has
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def table(found: dict[str, list[dict[str, float]]]) -> str:
    """Return the medians as text; ratios are computed round by round."""
    form = "compiled" if aiokprod.compiled else "pure"
    lines = [f"{form:<14}{'records/s':>12}{'CPU, us':>10}{'rate : plain':>14}{'plain CPU : CPU':>18}"]
    plain = found["plain"]
    for way, turns in found.items():
        ratio = median(each["rate"] / before["rate"] for each, before in zip(turns, plain, strict=True))
        thrift = median(before["cpu_us"] / each["cpu_us"] for each, before in zip(turns, plain, strict=True))
        rate, cpu = median(each["rate"] for each in turns), median(each["cpu_us"] for each in turns)
        lines.append(f"{way:<14}{rate:>12,.0f}{cpu:>10.2f}{ratio:>14.2f}{thrift:>18.2f}")
    return "\n".join(lines)


def measure(servers: str, ways: Sequence[str], rounds: int, count: int, core: int | None) -> str:
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way in ways:
            found[way].append(child(servers, way, count, core))
    return table(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", help="bootstrap servers; topics must be created by the brokers")
    parser.add_argument("--records", type=int, default=3_000_000, help="of a turn (default 3,000,000)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="plain and others (default all)")
    parser.add_argument("--way", choices=WAYS, help="one turn, printed as JSON")
    parser.add_argument("--core", type=int, help="the processor of the client (default any)")
    options = parser.parse_args()
    if options.way is not None:
        if options.core is not None:
            os.sched_setaffinity(0, {options.core})
        print(json.dumps(asyncio.run(turn(options.servers, options.way, options.records))))
    elif options.servers is not None:
        print(measure(options.servers, options.ways, options.rounds, options.records, options.core))
    else:
        from brokers import client_core, started

        with started(1, 0) as cluster:
            cluster.create_topic(TOPIC, partitions=6)
            print(measure(cluster.bootstrap_servers, options.ways, options.rounds, options.records, client_core()))


if __name__ == "__main__":
    main()
