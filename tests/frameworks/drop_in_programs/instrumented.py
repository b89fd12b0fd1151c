"""A program with OpenTelemetry's instrumentation of aiokafka: a span for each record that is sent and received.

Run as `python instrumented.py SERVERS TOPIC`; it knows nothing of aiokprod.
"""

import asyncio
import json
import sys

from opentelemetry import trace
from opentelemetry.instrumentation.aiokafka import AIOKafkaInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

SERVERS, TOPIC = sys.argv[1:]
spans = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(spans))
trace.set_tracer_provider(provider)
AIOKafkaInstrumentor().instrument()

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # noqa: E402


async def main() -> None:
    producer = AIOKafkaProducer(bootstrap_servers=SERVERS, client_id="orders")
    await producer.start()
    first = await producer.send_and_wait(TOPIC, b"one", key=b"k")
    await (await producer.send(TOPIC, b"two", b"k", 0, None, [("own", b"header")]))
    await producer.stop()
    consumer = AIOKafkaConsumer(TOPIC, bootstrap_servers=SERVERS, auto_offset_reset="earliest")
    await consumer.start()
    headers = [[name for name, _ in (await consumer.getone()).headers] for _ in range(2)]
    await consumer.stop()
    sent = [dict(span.attributes or {}) for span in spans.get_finished_spans() if span.name.endswith("send")]
    told = {
        "producer": type(producer).__module__,
        "partition": first.partition,
        "headers": headers,
        "partitions": [each["messaging.destination.partition.id"] for each in sent],
        "clients": [each["messaging.client.id"] for each in sent],
        "servers": [json.loads(each["server.address"]) for each in sent],
        "spans": sorted(span.name for span in spans.get_finished_spans()),
    }
    print(json.dumps(told))


asyncio.run(asyncio.wait_for(main(), 100))
