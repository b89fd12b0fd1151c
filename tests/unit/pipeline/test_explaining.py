"""`Producer.explain()` and `Delivery.explain()` in every state of a producer, from threads, and of a `MemoryProducer`."""

from __future__ import annotations

import asyncio
import pickle
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest
from virtual_rig import room, run, started

from aiokprod import Producer
from aiokprod.errors import AiokprodError, BrokerRejectedError, DeliveryTimeoutError, SendTimeoutError
from aiokprod.explanation import EventKind, Explanation, ObstacleKind, Place, ProducerExplanation, WaitsFor
from aiokprod.model import ProducerState
from aiokprod.pipeline.delivery.delivery import position_of
from aiokprod.pipeline.explaining import NAMED
from aiokprod.pipeline.partition.batch import ProducerBatch
from aiokprod.pipeline.partition.explained_queue import ExplainedQueue
from aiokprod.testing import MemoryProducer, MockCluster
from aiokprod.testing.virtual import VirtualNetwork


def kinds(told: ProducerExplanation) -> list[str]:
    return [obstacle.kind.name for obstacle in told.obstacles]


def judged(told: Explanation) -> tuple[Place, WaitsFor | None]:
    return told.place, told.waits_for


# ---------------------------------------------------------------------- states
def test_a_producer_explains_itself_before_its_start_and_after_its_end() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(1, network=network, seed=1) as cluster:
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial)
            new = producer.explain()
            assert (new.state, kinds(new)) == (ProducerState.NEW, ["NOT_STARTED"])
            assert new.buffer_limit_bytes == producer.config.buffer_memory
            await producer.start()
            assert producer.explain().is_fine
            delivery = producer.send("t", b"v")
            await delivery
            await producer.close()
            assert kinds(producer.explain()) == ["CLOSED"]
            assert judged(delivery.explain()) == (Place.DELIVERED, None)

    run(scenario)


def test_a_producer_explains_itself_while_it_starts_and_while_it_closes() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(1, network=network, seed=1) as cluster:
            cluster.create_topic("t")
            held = cluster.hold("Metadata")
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial)
            starting = asyncio.create_task(producer.start())
            await asyncio.sleep(2)
            told = producer.explain()
            assert told.state is ProducerState.STARTING
            assert kinds(told)[0] == "STARTING" and "for 2.0 s" in told.obstacles[0].text
            cluster.release(held)
            await starting
            held = cluster.hold("Produce")
            delivery = producer.send("t", b"v")
            closing = asyncio.create_task(producer.close(5))
            await asyncio.sleep(2)
            told = producer.explain()
            assert (told.state, kinds(told)) == (ProducerState.CLOSING, ["CLOSING", "SLOW_BROKER"])
            assert told.requests_in_flight == 1 and told.oldest is not None
            assert told.oldest.place is Place.IN_FLIGHT
            await closing
            cluster.release(held)
            failed = delivery.explain()
            assert failed.place is Place.FAILED and "UndeliveredAtCloseError" in failed.why
            assert failed.events[-2].kind is EventKind.SENT, "it was in flight when the producer closed"

    run(scenario)


def test_a_failed_producer_says_why() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            cluster.fail_next("Produce", "CLUSTER_AUTHORIZATION_FAILED")
            with pytest.raises(Exception, match="CLUSTER_AUTHORIZATION_FAILED"):
                await producer.send("t", b"v")
            told = producer.explain()
            assert (told.state, kinds(told)) == (ProducerState.FAILED, ["FAILED"])
            assert "CLUSTER_AUTHORIZATION_FAILED" in str(told)

    run(scenario)


def test_explanations_are_made_in_other_threads_while_records_flow() -> None:
    async def scenario() -> None:
        async with MockCluster(1) as cluster:
            cluster.create_topic("t", partitions=8)
            async with Producer(cluster.bootstrap_servers, linger_ms=0, **room(200_000)) as producer:
                deliveries = [producer.send("t", b"v")]
                over = threading.Event()
                told: list[ProducerExplanation | Explanation] = []
                troubles: list[BaseException] = []

                def look() -> None:
                    try:
                        while not over.is_set():
                            told[-2:] = [producer.explain(), deliveries[-1].explain()]
                    except BaseException as trouble:
                        troubles.append(trouble)

                thread = threading.Thread(target=look)
                thread.start()
                try:
                    for number in range(3_000):
                        await producer.ready()
                        deliveries.append(producer.send("t", b"%d" % number * 50))
                    await producer.flush()
                finally:
                    over.set()
                    thread.join()
                assert not troubles
                assert len(told) == 2 and all(str(each) for each in told)

    asyncio.run(scenario())


# ---------------------------------------------------------------------- records
def test_each_place_before_the_broker_is_told() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=1_000, batch_size=200, delivery_timeout_ms=60_000) as (cluster, producer):
            await producer.send("t", b"v", partition=0)
            held = cluster.hold("Produce")
            flying = [producer.send("t", b"v" * 150) for _ in range(8)]
            lingering = producer.send("t", b"v")
            await asyncio.sleep(0.5)
            assert judged(flying[0].explain()) == (Place.IN_FLIGHT, WaitsFor.ANSWER)
            assert judged(flying[7].explain()) == (Place.QUEUED, WaitsFor.WINDOW)
            told = lingering.explain()
            assert judged(told) == (Place.OPEN_BATCH, WaitsFor.LINGER)
            assert told.left_s == pytest.approx(0.5, abs=0.01)
            assert told.deadline_s == pytest.approx(59.5, abs=0.01)
            out_of_range = producer.send("t", b"v", partition=7)
            assert judged(out_of_range.explain()) == (Place.PARKED, WaitsFor.PARTITION)
            assert "partition 7 does not exist" in out_of_range.explain().why
            cluster.release(held)
            await asyncio.wait([*flying, lingering, out_of_range])
            assert out_of_range.explain().place is Place.FAILED

    run(scenario)


def test_one_batch_in_flight_until_the_first_answer_holds_those_behind_it_up() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, batch_size=200) as (cluster, producer):
            held = cluster.hold("Produce")
            deliveries = [producer.send("t", b"v" * 150) for _ in range(3)]
            await asyncio.sleep(0.5)
            told = deliveries[2].explain()
            assert judged(told) == (Place.OPEN_BATCH, WaitsFor.EARLIER_BATCHES)
            assert told.why == "2 go before it"
            cluster.release(held)
            await asyncio.wait(deliveries)

    run(scenario)


def test_a_serializer_that_is_awaited_is_told() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        gate = asyncio.Event()

        async def slow(value: bytes) -> bytes:
            await gate.wait()
            return value

        async with started(network, value_serializer=slow, linger_ms=0) as (_, producer):
            delivery = producer.send("t", b"v")
            await asyncio.sleep(3)
            assert judged(delivery.explain()) == (Place.PARKED, WaitsFor.SERIALIZER)
            told = producer.explain()
            assert kinds(told) == ["SERIALIZER"]
            assert (told.obstacles[0].topic, told.obstacles[0].count, told.parked_records) == ("t", 1, 1)
            gate.set()
            await delivery
            events = delivery.explain().events
            assert [event.text for event in events] == [
                "accepted",
                "has waited 3.000 s for its serializer",
                "delivered",
            ]

    run(scenario)


def test_a_record_that_waited_for_room_tells_so_once_it_is_delivered() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0, **room(20_000)) as (cluster, producer):
            held = cluster.hold("Produce")
            deliveries = [producer.send("t", b"v" * 9_000) for _ in range(3)]
            await asyncio.sleep(2)
            assert judged(deliveries[2].explain()) == (Place.PARKED, WaitsFor.ROOM)
            cluster.release(held)
            await asyncio.wait(deliveries)
            waited = [event for event in deliveries[2].explain().events if event.kind is EventKind.WAITED]
            assert len(waited) == 1 and waited[0].text.endswith("for room in the buffer")
            assert waited[0].at_s == pytest.approx(2.0, abs=0.1)

    run(scenario)


def test_a_handle_that_is_over_before_its_record_says_so() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            held = cluster.hold("Produce")
            detached, late = producer.send("t", b"v"), producer.send("t", b"v", timeout=1)
            late.add_done_callback(lambda _: None)
            await asyncio.sleep(2)
            detached.cancel()
            assert (detached.explain().handle, late.explain().handle) == ("detached", "timed out")
            assert detached.explain().place is late.explain().place is Place.IN_FLIGHT
            error = late.exception()
            assert isinstance(error, SendTimeoutError)
            assert "attempt 1 was sent to broker 1, which has not answered" in error.__notes__[-1]
            cluster.release(held)
            await producer.flush()
            assert (late.explain().handle, late.explain().place) == ("", Place.DELIVERED)
            assert "has not answered" not in str(late.explain())  # it has, by now

    run(scenario)


def test_many_topics_without_metadata_are_counted() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, max_block_ms=5_000) as (_, producer):
            deliveries = [producer.send(f"unknown-{number}", b"v") for number in range(NAMED + 20) for _ in range(2)]
            await asyncio.sleep(1)
            told = producer.explain()
            assert kinds(told) == ["UNKNOWN_TOPIC"] * (NAMED + 1)
            assert told.obstacles[-1].text == "20 more topics wait for metadata, with 40 records"
            assert sum(obstacle.count for obstacle in told.obstacles) == told.parked_records == len(deliveries)
            await asyncio.wait(deliveries)

    run(scenario)


@pytest.mark.parametrize("is_linked", [False, True])
def test_the_oldest_record_is_one_without_an_outcome(is_linked: bool) -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options = {
            "delivery_timeout_ms": 3_000,
            "request_timeout_ms": 3_000,
            "retry_backoff_ms": 1_500,
            "batch_size": 0,
        }
        async with started(network, linger_ms=0, retry_backoff_max_ms=1_500, **options) as (cluster, producer):
            await producer.send("t", b"v")
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
            late = producer.send("t", b"v")
            await asyncio.sleep(0.1)
            held = cluster.hold("Produce")  # its second attempt has no answer when its time is over
            await asyncio.sleep(2.4)
            behind = producer.send("t", b"v")
            if is_linked:  # the ledger links its entries when one leaves from the middle
                between, _ = producer.send("t", b"v"), producer.send("t", b"v")
                assert between.recall()
            await asyncio.sleep(1)
            assert isinstance(late.exception(), DeliveryTimeoutError) and not behind.done()
            oldest = producer.explain().oldest
            assert oldest is not None and oldest.age_s == pytest.approx(1, abs=0.1)
            assert producer.health().oldest_record_s == pytest.approx(1, abs=0.1)
            cluster.release(held)

    run(scenario)


def test_a_record_that_left_its_batch_is_no_longer_the_oldest() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=100_000) as (_, producer):
            first = producer.send("t", b"v")
            await asyncio.sleep(5)
            second = producer.send("t", b"v")
            await asyncio.sleep(1)
            assert producer.health().oldest_record_s == pytest.approx(6, abs=0.1)
            first.recall()
            assert producer.health().oldest_record_s == pytest.approx(1, abs=0.1)
            second.recall()
            assert producer.health().oldest_record_s is None

    run(scenario)


@pytest.mark.pure("replaces what compiled modules call without looking it up")
def test_of_many_partitions_only_the_oldest_record_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def explain_oldest(queue: ExplainedQueue) -> Explanation | None:
        asked.append(queue.partition)
        return whole(queue)

    whole = ExplainedQueue.explain_oldest
    monkeypatch.setattr(ExplainedQueue, "explain_oldest", explain_oldest)

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=50, linger_ms=100_000) as (_, producer):
            for partition in [*range(7, 50), *range(7)]:
                producer.send("t", b"v", partition=partition)
                await asyncio.sleep(0.01)  # virtual
            oldest = producer.explain().oldest
            assert oldest is not None and oldest.partition == 7 and asked == [7]

    run(scenario)


def test_many_partitions_that_back_off_are_one_obstacle() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, partitions=10, linger_ms=0) as (cluster, producer):
            failing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            deliveries = [producer.send("t", b"v", partition=partition) for partition in range(10)]
            await asyncio.sleep(2)
            (retrying,) = [each for each in producer.explain().obstacles if each.kind is ObstacleKind.RETRYING]
            assert (retrying.topic, retrying.count) == ("t", 10)
            assert retrying.text == (
                "10 partitions (t-0, t-1, t-2 and 7 others) back off before their next attempt; last: NOT_ENOUGH_REPLICAS:"
                " fewer replicas are in sync than min.insync.replicas: bring the other brokers back; `aiokprod doctor t` looks"
                " for the cause"
            )
            failing.cancel()
            await asyncio.wait(deliveries)

    run(scenario)


def test_a_producer_without_a_producer_id_says_so() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(1, network=network, seed=1) as cluster:
            cluster.create_topic("t")
            failing = cluster.fail_next("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
            async with Producer(cluster.bootstrap_servers, dialer=network.dial, linger_ms=0) as producer:
                delivery = producer.send("t", b"v")
                await asyncio.sleep(2)
                assert delivery.explain().waits_for is WaitsFor.PRODUCER_ID
                assert kinds(producer.explain()) == ["PRODUCER_ID"]
                failing.cancel()
                await delivery

    run(scenario)


def test_a_record_of_a_transaction_waits_for_its_id() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MockCluster(1, network=network, seed=1) as cluster:
            cluster.create_topic("t")
            failing = cluster.fail_next("InitProducerId", "COORDINATOR_LOAD_IN_PROGRESS", times=None)
            producer = Producer(cluster.bootstrap_servers, dialer=network.dial, transactional_id="tx")
            await producer.start(wait=False)
            producer.begin_transaction()
            delivery = producer.send("t", b"v")
            await asyncio.sleep(2)
            told = delivery.explain()
            assert told.waits_for is WaitsFor.TRANSACTION
            assert told.why.startswith("the transactional id is initialising")
            assert kinds(producer.explain()) == ["TRANSACTION"]
            failing.cancel()
            await producer.commit_transaction()
            await producer.close()

    run(scenario)


# ---------------------------------------------------------------------- the notes of failures
def test_records_that_fail_together_share_one_note_and_each_exception_has_its_own_list() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, delivery_timeout_ms=2_000, request_timeout_ms=1_000) as (cluster, producer):
            cluster.kill_broker(1)
            deliveries = [producer.send("t", b"v") for _ in range(1_000)]
            await asyncio.wait(deliveries)
            errors = [delivery.exception() for delivery in deliveries]
            notes = {id(error.__notes__[-1]) for error in errors if error is not None}
            assert len(notes) == 1
            assert isinstance(errors[0], DeliveryTimeoutError) and errors[1] is not None
            assert pickle.loads(pickle.dumps(errors[0])).__notes__ == errors[0].__notes__
            errors[0].add_note("mine")
            assert "mine" not in errors[1].__notes__
            cluster.start_broker(1)

    run(scenario)


def test_the_note_of_a_long_story_is_short() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        options = {"delivery_timeout_ms": 600_000, "retry_backoff_max_ms": 100}
        async with started(network, linger_ms=0, **options) as (cluster, producer):
            failing = cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS", times=None)
            delivery = producer.send("t", b"v")
            await asyncio.wait([delivery])
            error = delivery.exception()
            assert error is not None and error.attempts is not None and error.attempts > 1_000
            note = error.__notes__[-1]
            assert len(note.splitlines()) <= 20 and len(note) < 4_000
            assert "attempt 1 to" in note and f"attempt {error.attempts} to" in note
            assert len(delivery.explain().events) <= 20
            failing.cancel()

    run(scenario)


def test_a_failure_that_no_caller_awaits_has_its_note_too() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told: list[BaseException] = []
        async with started(network, linger_ms=0, on_delivery_error=told.append) as (cluster, producer):
            cluster.fail_next("Produce", "POLICY_VIOLATION")
            producer.send("t", b"v")
            await producer.flush()
            await asyncio.sleep(0)
        (error,) = told
        assert isinstance(error, BrokerRejectedError)
        assert "was answered POLICY_VIOLATION" in error.__notes__[-1]

    run(scenario)


def test_thousands_of_sends_that_time_out_together_share_one_note() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=0) as (cluster, producer):
            held = cluster.hold("Produce")
            deliveries = [producer.send("t", b"v", timeout=1) for _ in range(1_000)]
            await asyncio.wait(deliveries)
            errors = [delivery.exception() for delivery in deliveries]
            assert {type(error) for error in errors} == {SendTimeoutError}
            assert len({id(error.__notes__[-1]) for error in errors if error is not None}) < 20
            cluster.release(held)

    run(scenario)


def test_a_send_that_times_out_before_it_is_sent_has_a_note() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=5_000) as (_, producer):
            with pytest.raises(SendTimeoutError) as late:
                await producer.send("unknown", b"v", timeout=1)
            assert "has waited 1.000 s for the metadata of its topic" in late.value.__notes__[-1]
            in_batch = producer.send("t", b"v", timeout=1)
            await asyncio.sleep(2)
            error = in_batch.exception()
            assert error is not None
            assert error.__notes__[-1].splitlines() == [
                "Timeline of t-0, after the send:",
                "  +1.000 s has lingered up to 1.000 s in an open batch",
                "  +1.000 s failed: SendTimeoutError",
            ]

    run(scenario)


def test_a_hook_is_told_the_story_of_a_record_that_was_in_no_batch() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        told: list[AiokprodError] = []
        async with started(network, max_block_ms=1_000, on_delivery_error=told.append) as (_, producer):
            delivery = producer.send("unknown", b"v")
            await asyncio.sleep(10)
            error = delivery.exception()
        assert error is not None and error.reported and len(told) == 1
        assert told[0].__notes__ == error.__notes__
        assert len(error.__notes__) == 2 and error.__notes__[0] == error.advice

    run(scenario)


def test_a_record_that_was_recalled_needs_no_note() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=1_000) as (_, producer):
            delivery = producer.send("t", b"v")
            assert delivery.recall()
            error = delivery.exception()
            assert error is not None and error.__notes__ == [error.advice]

    run(scenario)


def test_the_story_of_a_record_ends_with_its_outcome_whatever_its_batch_sees_later() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=100) as (cluster, producer):
            _, recalled, stays = [producer.send("t", b"v") for _ in range(3)]
            assert recalled.recall()
            cluster.fail_next("Produce", "NOT_ENOUGH_REPLICAS")
            await stays
            assert [event.kind for event in recalled.explain().events] == [EventKind.ACCEPTED, EventKind.FAILED]
            assert EventKind.ATTEMPT_FAILED in {event.kind for event in stays.explain().events}

    run(scenario)


def test_a_record_that_is_delivered_at_once_keeps_no_story() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with started(network) as (_, producer):
            delivery = producer.send("t", b"v")
            await delivery
            told = delivery.explain()
            assert [event.kind for event in told.events] == [EventKind.ACCEPTED, EventKind.DELIVERED]
            holder, _ = position_of(delivery)
            assert isinstance(holder, ProducerBatch) and holder.timeline is None

    run(scenario)


@pytest.mark.pure("calls of Python functions are counted")
def test_nothing_of_an_explanation_is_made_until_it_is_asked_for() -> None:
    files = {"explanation.py", "explaining.py", "explained_queue.py", "timeline.py", "waits.py"}
    called: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and Path(frame.f_code.co_filename).name in files:
            called.append(f"{Path(frame.f_code.co_filename).name}: {frame.f_code.co_name}")

    async def scenario(network: VirtualNetwork) -> None:
        async with started(network, linger_ms=5) as (_, producer):
            await producer.send("t", b"v")
            sys.setprofile(note)
            try:
                for _ in range(10):
                    await producer.send("t", b"v")
                    await asyncio.gather(*(producer.send("t", b"v", key=b"%d" % key) for key in range(100)))
                    await producer.send_many("t", [b"v"] * 100)
                    await producer.flush()
                assert called == []
                producer.send("t", b"v").explain()
                assert "explained_queue.py: explain" in called  # the net is not empty
            finally:
                sys.setprofile(None)

    run(scenario)


# ---------------------------------------------------------------------- in memory
def test_a_memory_producer_explains_its_records() -> None:
    async def scenario(network: VirtualNetwork) -> None:
        async with MemoryProducer() as producer:
            assert producer.explain().is_fine
            producer.hold()
            delivery = producer.send("t", b"v")
            await asyncio.sleep(2)
            assert judged(delivery.explain()) == (Place.QUEUED, WaitsFor.RELEASE)
            assert kinds(producer.explain()) == ["HELD"]
            oldest = producer.explain().oldest
            assert oldest is not None and oldest.age_s == pytest.approx(2)
            producer.release()
            await delivery
            assert judged(delivery.explain()) == (Place.DELIVERED, None)
            producer.delay_next(5)
            delivery = producer.send("t", b"v")
            await asyncio.sleep(1)
            assert judged(delivery.explain()) == (Place.QUEUED, WaitsFor.TURN)
            assert delivery.explain().left_s == pytest.approx(4)
            producer.fail_next(BrokerRejectedError("POLICY_VIOLATION"))
            failing = producer.send("t", b"w")
            with pytest.raises(BrokerRejectedError) as raised:
                await failing
            assert (
                raised.value.__notes__[-1] == "Timeline of t-0, after the send:\n  +4.000 s failed: BrokerRejectedError"
            )
            assert failing.explain().place is Place.FAILED
        assert kinds(producer.explain()) == ["CLOSED"]
        assert kinds(MemoryProducer().explain()) == ["NOT_STARTED"]

    run(scenario)
