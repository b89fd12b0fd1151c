"""`Delivery.explain()`, `Producer.explain()` and the timeline of a failure, for faults on a `MockCluster` in virtual time.

`explanations.txt` has the texts for each fault, with times to a tenth of a second. Read them when they change:

    PYTHONPATH=tests/unit/pipeline python tests/unit/pipeline/behaviour/test_explanations.py

writes the file again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from virtual_rig import room, run, started

from aiokprod import Delivery, Producer
from aiokprod.errors import AiokprodError, ProducerFencedError
from aiokprod.explanation import ObstacleKind, Place, WaitsFor
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual import VirtualNetwork

TEXTS: Final = Path(__file__).with_name("explanations.txt")
Fault = Callable[[VirtualNetwork, "Story"], Awaitable[None]]
FAULTS: dict[str, Fault] = {}


class Story:
    """The texts of one fault, and the facts of its explanations."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.places: list[tuple[Place, WaitsFor | None]] = []
        self.kinds: list[tuple[ObstacleKind, ...]] = []

    def look(self, producer: Producer, delivery: Delivery | None = None) -> None:
        """Explain both at this moment."""
        of_delivery = ""
        if delivery is not None:
            explained = delivery.explain()
            self.places.append((explained.place, explained.waits_for))
            of_delivery = rounded(str(explained))
            self.texts.append(f"delivery.explain()\n{of_delivery}")
        of_producer = producer.explain()
        self.kinds.append(tuple(obstacle.kind for obstacle in of_producer.obstacles))
        text = rounded(str(of_producer))
        if of_delivery:
            text = text.replace(f"the oldest record: {of_delivery}", "the oldest record: as above")
        self.texts.append(f"producer.explain()\n{text}")

    async def end(self, delivery: Delivery) -> None:
        """Wait for the outcome, and keep the note of a failure, or the explanation of a success."""
        try:
            await delivery
        except AiokprodError as error:
            assert delivery.explain().place is Place.FAILED
            self.texts.append(f"the note of {type(error).__name__}\n{rounded(error.__notes__[-1])}")
        else:
            explained = delivery.explain()
            assert (explained.place, explained.waits_for) == (Place.DELIVERED, None)
            self.texts.append(f"delivery.explain(), delivered\n{rounded(str(explained))}")

    def __str__(self) -> str:
        return "\n\n".join(self.texts)


def rounded(text: str) -> str:
    """Return the text with its times to a tenth of a second: the drawn latencies of the network are far below."""
    return re.sub(r"\d+\.\d{3}\b", lambda found: f"{float(found.group()):.1f}", text)


def fault(scenario: Fault) -> Fault:
    FAULTS[scenario.__name__.replace("_", " ")] = scenario
    return scenario


# ---------------------------------------------------------------------- the faults
@fault
async def broker_down(network: VirtualNetwork, story: Story) -> None:
    async with started(network, delivery_timeout_ms=3_000, request_timeout_ms=2_000, linger_ms=0) as (
        cluster,
        producer,
    ):
        await producer.send("t", b"v")
        cluster.kill_broker(1)
        await asyncio.sleep(0.5)
        delivery = producer.send("t", b"v")
        await asyncio.sleep(2)
        story.look(producer, delivery)
        await story.end(delivery)


@fault
async def no_leader(network: VirtualNetwork, story: Story) -> None:
    options: dict[str, Any] = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 2_000, "linger_ms": 0}
    async with started(network, brokers=3, **options) as (cluster, producer):
        cluster.create_topic("one-copy", replication_factor=1)
        await producer.send("one-copy", b"v")
        leader = cluster.leader("one-copy", 0)
        assert leader is not None
        cluster.kill_broker(leader)
        await asyncio.sleep(0.5)
        delivery = producer.send("one-copy", b"v")
        await asyncio.sleep(2)
        story.look(producer, delivery)
        await story.end(delivery)


@fault
async def unknown_topic(network: VirtualNetwork, story: Story) -> None:
    async with started(network, max_block_ms=3_000) as (_, producer):
        deliveries = [producer.send("unknown", b"v") for _ in range(3)]
        await asyncio.sleep(2)
        story.look(producer, deliveries[0])
        await story.end(deliveries[0])
        await asyncio.wait(deliveries)


@fault
async def leader_moved(network: VirtualNetwork, story: Story) -> None:
    async with started(network, brokers=3, linger_ms=0) as (cluster, producer):
        await producer.send("t", b"v")
        cluster.move_leader("t", 0, 2)
        await story.end(producer.send("t", b"v"))


@fault
async def connection_lost_with_a_request_in_flight(network: VirtualNetwork, story: Story) -> None:
    async with started(network, linger_ms=0) as (cluster, producer):
        await producer.send("t", b"v")
        held = cluster.hold("Produce")
        delivery = producer.send("t", b"v")
        await asyncio.sleep(1)
        story.look(producer, delivery)
        cluster.close_connections(1, abort=True)
        await asyncio.sleep(0.05)
        story.look(producer, delivery)
        cluster.release(held)
        await story.end(delivery)


@fault
async def timeouts(network: VirtualNetwork, story: Story) -> None:
    async with started(network, delivery_timeout_ms=7_000, request_timeout_ms=3_000, linger_ms=0) as (
        cluster,
        producer,
    ):
        await producer.send("t", b"v")
        cluster.swallow_next("Produce", times=None)
        delivery = producer.send("t", b"v")
        await asyncio.sleep(5)
        story.look(producer, delivery)
        await story.end(delivery)


@fault
async def throttle(network: VirtualNetwork, story: Story) -> None:
    async with started(network, linger_ms=0) as (cluster, producer):
        cluster.throttle_next("Produce", 5_000)
        await producer.send("t", b"v")
        await asyncio.sleep(1)
        delivery = producer.send("t", b"v")
        await asyncio.sleep(1)
        story.look(producer, delivery)
        await story.end(delivery)


@fault
async def not_enough_replicas(network: VirtualNetwork, story: Story) -> None:
    async with started(network, delivery_timeout_ms=3_000, request_timeout_ms=2_000, linger_ms=0) as (
        cluster,
        producer,
    ):
        cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
        delivery = producer.send("t", b"v")
        await asyncio.sleep(2)
        story.look(producer, delivery)
        await story.end(delivery)


@fault
async def message_too_large_and_split(network: VirtualNetwork, story: Story) -> None:
    async with started(network, linger_ms=10) as (cluster, producer):
        cluster.alter_topic("t", max_message_bytes=2_500)
        deliveries = [producer.send("t", b"v" * size) for size in (1_000, 1_000, 5_000, 1_000)]
        await story.end(deliveries[2])
        await story.end(deliveries[3])
        await asyncio.wait(deliveries)


@fault
async def buffer_full(network: VirtualNetwork, story: Story) -> None:
    async with started(network, linger_ms=0, max_block_ms=3_000, **room(20_000)) as (cluster, producer):
        held = cluster.hold("Produce")
        deliveries = [producer.send("t", b"v" * 9_000) for _ in range(4)]
        waiting = asyncio.create_task(producer.ready())
        await asyncio.sleep(2)
        story.look(producer, deliveries[3])
        await story.end(deliveries[3])
        cluster.release(held)
        await asyncio.wait(deliveries)
        await waiting


@fault
async def metadata_not_reachable(network: VirtualNetwork, story: Story) -> None:
    producer = Producer("127.0.0.1:9999", dialer=network.dial, max_block_ms=3_000)
    await producer.start(wait=False)
    delivery = producer.send("t", b"v")
    await asyncio.sleep(2)
    story.look(producer, delivery)
    await story.end(delivery)
    await producer.close()


@fault
async def authentication_failed(network: VirtualNetwork, story: Story) -> None:
    async with MockCluster(1, network=network, seed=1, sasl_mechanisms=["PLAIN"], users={"alice": "right"}) as cluster:
        producer = Producer(
            cluster.bootstrap_servers,
            dialer=network.dial,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="alice",
            sasl_password="secret",
            max_block_ms=3_000,
        )
        await producer.start(wait=False)
        delivery = producer.send("t", b"v")
        await asyncio.sleep(2)
        story.look(producer, delivery)
        await story.end(delivery)
        await producer.close()
    assert "secret" not in str(story)


@fault
async def fenced(network: VirtualNetwork, story: Story) -> None:
    async with started(network, transactional_id="tx", linger_ms=0) as (cluster, producer):
        producer.begin_transaction()
        await producer.send("t", b"v")
        async with Producer(cluster.bootstrap_servers, dialer=network.dial, transactional_id="tx"):
            delivery = producer.send("t", b"v")
            await story.end(delivery)
            story.look(producer)
            with pytest.raises(ProducerFencedError):
                await producer.abort_transaction()
            story.look(producer)


@fault
async def out_of_order_and_another_epoch(network: VirtualNetwork, story: Story) -> None:
    async with started(network, linger_ms=0, batch_size=100) as (cluster, producer):
        await asyncio.gather(*(producer.send("t", b"%d" % number + b"v" * 90) for number in range(5)))
        held = cluster.hold("Produce", nth=2)
        cluster.fail_next("Produce", "OUT_OF_ORDER_SEQUENCE_NUMBER")
        deliveries = [producer.send("t", b"%d" % number + b"v" * 90) for number in range(3)]
        await asyncio.sleep(1)
        story.look(producer, deliveries[0])
        cluster.release(held)
        await story.end(deliveries[0])
        await asyncio.wait(deliveries)


@fault
async def chased_and_failed(network: VirtualNetwork, story: Story) -> None:
    options: dict[str, Any] = {"delivery_timeout_ms": 3_000, "request_timeout_ms": 2_500}
    async with started(network, linger_ms=0, batch_size=100, **options) as (cluster, producer):
        await producer.send("t", b"v" * 90)
        held = cluster.hold("Produce", nth=2)
        cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
        deliveries = [producer.send("t", b"%d" % number + b"v" * 90) for number in range(2)]
        await asyncio.sleep(1)
        cluster.swallow_next("Produce", times=None)
        cluster.release(held)
        await asyncio.sleep(1)
        story.look(producer, deliveries[0])
        await asyncio.wait(deliveries)
        await story.end(deliveries[0])
        await story.end(deliveries[1])


@fault
async def transaction_aborting(network: VirtualNetwork, story: Story) -> None:
    async with started(network, transactional_id="tx", linger_ms=1_000) as (cluster, producer):
        producer.begin_transaction()
        await producer.send("t", b"v")
        held = cluster.hold("EndTxn")
        delivery = producer.send("t", b"w")
        await asyncio.sleep(0.5)
        story.look(producer, delivery)
        aborting = asyncio.create_task(producer.abort_transaction())
        await story.end(delivery)
        await asyncio.sleep(2)
        story.look(producer)
        cluster.release(held)
        await aborting


@fault
async def name_not_found(network: VirtualNetwork, story: Story) -> None:
    producer = Producer("kafka.invalid:9092", max_block_ms=3_000)
    await producer.start(wait=False)
    delivery = producer.send("t", b"v")
    await asyncio.sleep(2)
    story.look(producer, delivery)
    await story.end(delivery)
    await producer.close()


# ---------------------------------------------------------------------- the texts
def told(name: str) -> str:
    """Return the texts of a fault."""
    story = Story()

    async def scenario(network: VirtualNetwork) -> None:
        await FAULTS[name](network, story)

    run(scenario)
    return str(story)


def stored() -> dict[str, str]:
    found = re.split(r"^=+ (.*)\n", TEXTS.read_text(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(found[1::2], found[2::2], strict=True)}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_explained(name: str) -> None:
    assert told(name) == stored()[name]


def test_each_stored_text_is_of_a_fault() -> None:
    assert list(stored()) == list(FAULTS)


if __name__ == "__main__":
    for_each = (f"==================== {name}\n{told(name)}\n" for name in FAULTS)
    TEXTS.write_text("\n".join(for_each))
