"""The cost of answers that no honest broker gives: `python bench/hostile.py`. About two minutes.

Each case is a cluster in a process of its own, which answers one request with too much, and a client in another, which must
come through: the record is acknowledged, or the read ends with an error. Two figures of the client: how long its loop was held
at a time (processor time of its thread, so that a busy machine does not matter), and by how much its memory grew at most.

`--tree DIR` plays the client of another checkout; `--markdown` prints a row of a table for each case.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

UNTIL = {
    "fetch, snappy": 2,
    "fetch, small batch": 9_500_000,
    "fetch, as large as may be": 1_400_000,
    "fetch, small batches": 60_000,
    "fetch, batches of nothing": 137_000,
    "fetch, zstd window": 2,
    "fetch, snappy of two": 2,
}
RECORDS = {"produce, as large as may be": 2_500, "produce, named within": 10_000, "produce, every other named": 20_000}
PARTITIONS = {"produce, leader hints": 4_000}
ROOT = Path(__file__).resolve().parents[1]
MB = 1_000_000
PLAY_S = 150.0
ALLOWED_STALL_MS = 50.0
ALLOWED_MB = 32 * 1024 * 1024 / MB
CASES = {
    "metadata, partitions": "90 MB of Metadata: partitions of the topic",
    "metadata, brokers": "90 MB of Metadata: brokers",
    "metadata, as large as may be": "1 MB of Metadata: 40,000 partitions, within the bounds",
    "metadata, brokers within": "1 MB of Metadata: 9,900 brokers, within the bounds",
    "produce, partitions": "90 MB of Produce: partitions",
    "produce, record errors": "53 MB of Produce: a million records by name",
    "produce, as large as may be": "Produce: each of 2,500 records by name with a text of its own, within the bounds",
    "produce, named within": "Produce: each of 10,000 records by name with a text of its own, within the bounds",
    "produce, every other named": "Produce: each other of 20,000 records by name with a text of its own, within the bounds",
    "produce, leader hints": "Produce: 4,000 partitions, each with a new leader that is another broker, within the bounds",
    "api versions": "90 MB of ApiVersions",
    "init producer id": "90 MB of InitProducerId: an unknown field",
    "find coordinator": "90 MB of FindCoordinator: coordinators",
    "sasl handshake": "90 MB of SaslHandshake: mechanisms",
    "sasl authenticate": "90 MB of SaslAuthenticate: a text",
    "list offsets": "90 MB of ListOffsets: partitions, to the reader",
    "fetch, partitions": "90 MB of Fetch: partitions, to the reader",
    "fetch, partitions few": "400 KB of Fetch: 9,990 partitions, to the reader",
    "fetch, headers": "Fetch: one record of 30,000 headers, within the bounds",
    "fetch, tags": "Fetch: 990 tagged fields, within the bounds",
    "fetch, aborted": "Fetch: 9,900 aborted transactions, within the bounds",
    "fetch, gzip of nothing": "8 MB of Fetch: a record, and 400,000 pieces of gzip with nothing in them behind it",
    "fetch, zstd of nothing": "8 MB of Fetch: a record, and 600,000 pieces of zstd with nothing in them behind it",
    "fetch, snappy": "Fetch: one block of snappy with two records of 8 MB, within the bounds",
    "fetch, snappy tiny": "8 MB of Fetch: one record of 2 MB in blocks of snappy of two bytes, within the bounds",
    "fetch, gzip record": "8 MB of Fetch: one record that cannot be packed, in gzip, within the bounds",
    "fetch, snappy record": "8 MB of Fetch: one record that cannot be packed, in snappy, within the bounds",
    "fetch, lz4 record": "8 MB of Fetch: one record that cannot be packed, in lz4, within the bounds",
    "fetch, zstd record": "8 MB of Fetch: one record that cannot be packed, in zstd, within the bounds",
    "fetch, snappy of two": "8 MB of Fetch: a record that cannot be packed and one of zeros, in snappy, within the bounds",
    "fetch, zstd window": "8 MB of Fetch: the same two in zstd with a window of 128 MB, within the bounds",
    "fetch, batches of nothing": "8 MB of Fetch: 137,000 batches without a record, within the bounds",
    "fetch, records": "90 MB of Fetch: one batch, to the reader",
    "fetch, small batch": "6 KB of Fetch: one batch of zstd with 9.5 million records, to the reader",
    "fetch, small batches": "4 MB of Fetch: 60,000 batches of one record, within the bounds",
    "fetch, large record": "8 MB of Fetch: one record, within the bounds",
    "fetch, as large as may be": "40 KB of Fetch: one batch of gzip with 1.4 million records, within the bounds",
}


# ---------------------------------------------------------------------- the cluster
def serve(case: str) -> None:
    """Print where the cluster listens, and answer until stdin ends."""
    from aiokprod.testing import MockCluster

    sasl: dict[str, Any] = {}
    if case.startswith("sasl"):
        sasl = {"sasl_mechanisms": ("PLAIN",), "users": {"u": "p"}}
    with MockCluster(brokers=1, **sasl) as cluster:
        cluster.create_topic("t", partitions=PARTITIONS.get(case, 1))
        if case.startswith("fetch"):
            asyncio.run(one_record(cluster.bootstrap_servers))  # what is read when the fault is over
        api, answer = answer_of(case, cluster)
        named = {"topic": "t"} if case in ("metadata, as large as may be", "metadata, brokers within") else {}
        cluster.answer_with(api, answer, **named)
        print(cluster.bootstrap_servers, flush=True)
        sys.stdin.read()


async def one_record(servers: str) -> None:
    from aiokprod import Producer

    async with Producer(servers) as producer:
        await producer.send("t", b"v")


def repeated(message: Any, element: Any, version: int, count: int, *, flexible: bool) -> bytes:
    """Return the body of the message with its one element repeated so many times."""
    from aiokprod.wire.writer import Writer

    one, whole = Writer(), Writer()
    element.write(one, version)
    message.write(whole, version)
    piece, body = bytes(one.out), bytes(whole.out)
    mark = b"\x02" if flexible else (1).to_bytes(4, "big")
    at = body.index(mark + piece)
    counted = Writer()
    counted.count(count, flexible)
    return body[:at] + bytes(counted.out) + piece * count + body[at + len(mark + piece) :]


def batches(kind: str) -> bytes:
    """Record batches for the answers to Fetch."""
    from aiokprod.records.batch import batch_header, encode_records
    from aiokprod.records.compression import CODEC_BITS, compress
    from aiokprod.records.crc import checksum
    from aiokprod.records.headers import encode_headers

    codec, count = {"zstd": ("zstd", 9_500_000), "gzip": ("gzip", 1_400_000), "empty": ("none", 1)}.get(
        kind, ("none", 0)
    )
    section = b""
    if count:
        # As `encode_records` makes them, of records that are nothing but their offset: seven to ten bytes each.
        pieces = [bytes(encode_records([b""], None, None, [0]))]
        first = pieces[0]
        assert first[0] == 2 * (len(first) - 1)
        from aiokprod.records.varint import encode

        def record(delta: int) -> bytes:
            body = b"\0\0" + encode(delta) + first[4:]
            return encode(len(body)) + body

        section = compress(codec, None, b"".join(map(record, range(count))) if kind == "gzip" else first * count)
    elif kind == "record":
        section = bytes(encode_records([bytes(8 * MB)], None, None, [0]))
        count = 1
    elif kind.startswith("nothing"):
        codec = kind.split()[1]
        count = 1
        nothing = compress(codec, None, b"")
        first = compress(codec, None, bytes(encode_records([b"v"], None, None, [0])))
        section = first + (8 * MB // len(nothing) - 10) * nothing
    elif kind == "one":
        section = bytes(encode_records([b"v"], None, None, [0]))
        count = 1
    elif kind == "snappy":
        import cramjam

        codec, count = "snappy", 2
        section = bytes(
            cramjam.snappy.compress_raw(bytes(encode_records([bytes(8 * MB - 64)] * 2, None, None, [0, 0])))
        )
    elif kind == "snappy tiny":
        from aiokprod.records.compression import XERIAL_HEADER

        codec, count = "snappy", 1
        plain = bytes(encode_records([bytes(2 * MB)], None, None, [0]))
        blocks = [bytes([len(plain[at : at + 2]), 4 * len(plain[at : at + 2]) - 4]) for at in range(0, len(plain), 2)]
        section = XERIAL_HEADER + b"".join(
            (len(block) + block[0]).to_bytes(4, "big") + block + plain[2 * at : 2 * at + 2]
            for at, block in enumerate(blocks)
        )
    elif kind.endswith(("record", "window", "of two")):
        codec, _, shape = kind.partition(" ")
        values = [Random(1).randbytes(7_900_000)]  # packed, with the header, a little below 8 MB
        if shape != "record":
            values.append(bytes(7_900_000))
        count = len(values)
        section = bytes(encode_records([*values], None, None, [0] * count))
        if codec == "snappy":
            import cramjam

            section = bytes(cramjam.snappy.compress_raw(section))
        elif shape == "window":
            import zstandard

            parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
            packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
            section = packer.compress(section) + packer.flush()
        else:
            section = compress(codec, None, section)
    elif kind == "headers":
        section = bytes(encode_records([b""], None, [encode_headers([("h", b"v")] * 30_000)], [0]))
        count = 1
    elif kind == "large":
        section = bytes(90 * MB)
        count = 1
    header = batch_header(
        section, count=count, attributes=CODEC_BITS[codec], base_timestamp_ms=0, max_timestamp_ms=0, producer_id=-1,
        producer_epoch=-1, base_sequence=-1,
    )  # fmt: skip
    if kind == "no records":
        without = bytearray(batch_header(
            b"", count=1, attributes=0, base_timestamp_ms=0, max_timestamp_ms=0, producer_id=-1, producer_epoch=-1,
            base_sequence=-1,
        ))  # fmt: skip
        without[57:61] = bytes(4)  # the count
        without[17:21] = checksum((memoryview(without)[21:],)).to_bytes(4, "big")
        return b"".join(at.to_bytes(8, "big") + without[8:] for at in range(137_000))
    if kind == "empty":
        return b"".join(at.to_bytes(8, "big") + bytes(header)[8:] + section for at in range(60_000))
    return bytes(header) + section


def answer_of(case: str, cluster: Any) -> tuple[str, Callable[[Any, int], object]]:
    """Return the API of the case and what is answered to it."""
    from aiokprod.wire.messages import (
        api_versions,
        fetch,
        find_coordinator,
        init_producer_id,
        list_offsets,
        metadata,
        produce,
        sasl_authenticate,
        sasl_handshake,
    )

    topic_id = cluster.topic_id("t")
    host, port = cluster.bootstrap_servers.split(":")
    node = metadata.MetadataResponseBroker(node_id=1, host=host, port=int(port))

    def filled(message: Any, element: Any, size_bytes: int, flexible_from: int, count: int = 0) -> Any:
        from aiokprod.wire.writer import Writer

        def body(version: int) -> bytes:
            writer = Writer()
            element.write(writer, version)
            many = count or size_bytes // max(1, len(writer.out))
            return repeated(message, element, version, many, flexible=version >= flexible_from)

        ready = {message.MAX_VERSION: body(message.MAX_VERSION)}  # made before a client waits for it
        return lambda request, version: ready.get(version) or body(version)

    if case.startswith("metadata"):
        partition = metadata.MetadataResponsePartition(
            partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = metadata.MetadataResponseTopic(name="t", topic_id=topic_id, partitions=[partition])
        message = metadata.MetadataResponse(
            brokers=[node], cluster_id=cluster.cluster_id, controller_id=1, topics=[topic]
        )
        if case == "metadata, brokers within":
            nodes = [metadata.MetadataResponseBroker(node_id=at, host=host, port=int(port)) for at in range(1, 9_901)]
            crowded = metadata.MetadataResponse(
                brokers=nodes, cluster_id=cluster.cluster_id, controller_id=1, topics=[topic]
            )
            return "Metadata", lambda request, version: crowded
        if case == "metadata, brokers":
            return "Metadata", filled(message, node, 90 * MB, 9)
        return "Metadata", filled(message, partition, 90 * MB, 9, 40_000 if "may be" in case else 0)
    if case.startswith("produce"):
        errors: list[produce.BatchIndexAndErrorMessage] = []
        if case == "produce, record errors":
            errors = [produce.BatchIndexAndErrorMessage(batch_index=0, batch_index_error_message="x" * 46)]
        elif case in RECORDS:
            errors = [
                produce.BatchIndexAndErrorMessage(batch_index=at, batch_index_error_message=f"{at} is wrong".ljust(150))
                for at in range(0, RECORDS[case], 2 if "every other" in case else 1)
            ]
        if case in PARTITIONS:
            return "Produce", all_led_elsewhere
        outcome = produce.PartitionProduceResponse(index=0, error_code=87, base_offset=-1, record_errors=errors)
        of_topic = produce.TopicProduceResponse(name="t", topic_id=topic_id, partition_responses=[outcome])
        answered = produce.ProduceResponse(responses=[of_topic])
        if case == "produce, partitions":
            return "Produce", filled(answered, outcome, 90 * MB, 9)
        if case == "produce, record errors":
            return "Produce", filled(answered, errors[0], 53 * MB, 9, 1_000_000)
        return "Produce", lambda request, version: answered
    if case == "api versions":
        key = api_versions.ApiVersion(api_key=3, min_version=0, max_version=12)
        return "ApiVersions", filled(api_versions.ApiVersionsResponse(api_keys=[key]), key, 90 * MB, 3)
    if case == "init producer id":

        def with_unknown_field(request: Any, version: int) -> bytes:
            from aiokprod.wire.writer import Writer

            writer = Writer()
            init_producer_id.InitProducerIdResponse(producer_id=7, producer_epoch=0).write(writer, version)
            size = Writer()
            size.count(90 * MB - 1, True)  # an unsigned varint of one more
            return bytes(writer.out[:-1]) + b"\x01\x63" + bytes(size.out) + bytes(90 * MB)

        return "InitProducerId", with_unknown_field
    if case == "find coordinator":
        found = find_coordinator.Coordinator(key="k", node_id=1, host=host, port=int(port))
        return "FindCoordinator", filled(
            find_coordinator.FindCoordinatorResponse(coordinators=[found]), found, 90 * MB, 3
        )
    if case == "sasl handshake":
        many = 90 * MB // 16
        names = b"".join([bytes(2), many.to_bytes(4, "big"), b"\x00\x0eABCDEFGHIJKLMN" * many])
        assert sasl_handshake.SaslHandshakeRequest.MAX_VERSION == 1
        return "SaslHandshake", lambda request, version: names
    if case == "sasl authenticate":
        text = sasl_authenticate.SaslAuthenticateResponse(auth_bytes=bytes(90 * MB))
        return "SaslAuthenticate", lambda request, version: text
    if case == "list offsets":
        offset = list_offsets.ListOffsetsPartitionResponse(partition_index=0, offset=7)
        of = list_offsets.ListOffsetsTopicResponse(name="t", partitions=[offset])
        return "ListOffsets", filled(list_offsets.ListOffsetsResponse(topics=[of]), offset, 90 * MB, 6)
    if case == "fetch, tags":
        return "Fetch", with_tags
    kind = {
        "small batch": "zstd",
        "gzip of nothing": "nothing gzip",
        "zstd of nothing": "nothing zstd",
        "snappy": "snappy",
        "aborted": "one",
        "as large as may be": "gzip",
        "small batches": "empty",
        "large record": "record",
        "headers": "headers",
        "batches of nothing": "no records",
        "records": "large",
    }.get(case[7:], case[7:])
    records = None if case.startswith("fetch, partitions") else batches(kind)
    data = fetch.PartitionData(
        partition_index=0, high_watermark=9_500_000, last_stable_offset=9_500_000, records=records
    )
    if case == "fetch, aborted":
        data.aborted_transactions = [fetch.AbortedTransaction(producer_id=at, first_offset=0) for at in range(9_900)]
    answers = fetch.FetchResponse(
        responses=[fetch.FetchableTopicResponse(topic="t", topic_id=topic_id, partitions=[data])]
    )
    if case == "fetch, partitions few":
        return "Fetch", filled(answers, data, 0, 12, 9_990)
    if case == "fetch, partitions":
        return "Fetch", filled(answers, data, 90 * MB, 12)
    return "Fetch", lambda request, version: answers


def all_led_elsewhere(request: Any, version: int) -> object:
    """Return an answer that names another leader, with its address, for each partition (KIP-951)."""
    from aiokprod.wire.messages import produce

    topics, endpoints = [], []
    for topic in request.topic_data:
        outcomes = []
        for data in topic.partition_data:
            node = 10 + data.index
            leader = produce.LeaderIdAndEpoch(leader_id=node, leader_epoch=5)
            outcomes.append(
                produce.PartitionProduceResponse(index=data.index, error_code=6, base_offset=-1, current_leader=leader)
            )
            endpoints.append(produce.NodeEndpoint(node_id=node, host="127.0.0.1", port=1))
        topics.append(
            produce.TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=outcomes)
        )
    return produce.ProduceResponse(responses=topics, node_endpoints=endpoints)


def with_tags(request: Any, version: int) -> bytes:
    """Return an answer to Fetch without a topic and with thousands of tagged fields that no version defines."""
    from aiokprod.wire.messages.fetch import FetchResponse
    from aiokprod.wire.writer import Writer

    writer, count = Writer(), Writer()
    FetchResponse().write(writer, version)
    fields = []
    for tag in range(100, 1_090):
        field = Writer()
        field.count(tag - 1, True)  # an unsigned varint of one more
        fields.append(bytes(field.out) + b"\x00")
    count.count(len(fields) - 1, True)
    return bytes(writer.out[:-1]) + bytes(count.out) + b"".join(fields)


# ---------------------------------------------------------------------- the client
def memory_kb(name: str) -> int:
    """Return VmRSS or VmHWM of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1])
    raise AssertionError(name)


class Heartbeat:
    """A gauge of the longest processor time that the loop's thread takes between two turns of the loop."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._last = time.thread_time()
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_soon(self._beat)

    def _beat(self) -> None:
        now = time.thread_time()
        self.longest_s = max(self.longest_s, now - self._last)
        self._last = now
        self._timer = self._loop.call_soon(self._beat)

    def stop(self) -> None:
        self._timer.cancel()


async def play(case: str, servers: str) -> dict[str, Any]:
    """Measure the client, with its imports done first."""
    from aiokprod import Producer
    from aiokprod.errors import AiokprodError
    from aiokprod.reader import Reader

    options: dict[str, Any] = {}
    if case.startswith("sasl"):
        options = {
            "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_username": "u", "sasl_password": "p",
        }  # fmt: skip
    await warm_up()
    before_kb = memory_kb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins here
    heart = Heartbeat()
    began = time.monotonic()
    end = "came through"
    try:
        async with asyncio.timeout(PLAY_S):
            if case.startswith(("list", "fetch")):
                async with Reader(servers, **options) as reader:
                    if case == "list offsets":
                        await reader.latest("t", 0)
                    else:
                        async for _ in reader.read("t", 0, 0, UNTIL.get(case, 1), read_committed="aborted" in case):
                            pass
            elif case == "find coordinator":
                await asks_for_a_coordinator(servers)
            else:
                if case in RECORDS:
                    options["batch_size"] = 500_000  # all of them in one batch, or the answer names too many for it
                if case in PARTITIONS:
                    options |= {"request_timeout_ms": 1_000, "delivery_timeout_ms": 3_000}
                async with Producer(servers, linger_ms=500, **options) as producer:
                    count = RECORDS.get(case, 1)
                    partitions = await producer.partitions_for("t")
                    if case in PARTITIONS:
                        count = PARTITIONS[case]
                    deliveries: list[Any] = []
                    for number in range(count):
                        deliveries.append(producer.send("t", b"v", partition=number % len(partitions)))
                        if number % 100 == 99 and number < count - 100:
                            await asyncio.sleep(0)  # the loop is held by answers only
                    if case in PARTITIONS:
                        deliveries = deliveries[:1]
                    for delivery in deliveries:
                        with suppress(AiokprodError):
                            await delivery
    except (AiokprodError, TimeoutError, ExceptionGroup) as error:
        end = f"{type(error).__name__}: {str(error)[:120]}"
    heart.stop()
    grown = (memory_kb("VmHWM") - before_kb) * 1024 / MB
    return {
        "stall_ms": round(heart.longest_s * 1000, 1),
        "grown_mb": round(max(0.0, grown), 1),
        "seconds": round(time.monotonic() - began, 2),
        "end": end,
    }


async def warm_up() -> None:
    """Send and read one record first, so that what is loaded and compiled once is not in the figures."""
    from aiokprod import Producer
    from aiokprod.reader import Reader

    servers = os.environ["WARM_UP"]
    async with Producer(servers) as producer:
        await asyncio.gather(*(producer.send("warm", b"v") for _ in range(5_000)))
    async with Reader(servers) as reader:
        async for _ in reader.read("warm", 0):
            pass


async def asks_for_a_coordinator(servers: str) -> None:
    from aiokprod import ProducerConfig
    from aiokprod.cluster.client import ClusterClient
    from aiokprod.cluster.cluster_listener import SilentListener
    from aiokprod.metrics import Metrics
    from aiokprod.wire.messages.find_coordinator import FindCoordinatorRequest

    client = ClusterClient(ProducerConfig(bootstrap_servers=servers), Metrics(), SilentListener())
    await client.start(30)
    try:
        await client.request(FindCoordinatorRequest(coordinator_keys=["k"]), timeout_s=PLAY_S)
    finally:
        await client.close()


# ---------------------------------------------------------------------- both
def child(*arguments: str, tree: Path, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, **variables, "PYTHONPATH": str(tree), "AIOKPROD_PURE": "1"}
    return subprocess.Popen(
        [sys.executable, __file__, *arguments], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, cwd="/",
    )  # fmt: skip


def measure(case: str, tree: Path) -> dict[str, Any]:
    """Return the figures of one case."""
    hostile = child("--serve", case, tree=ROOT)
    plain = child("--serve-plain", tree=ROOT)
    try:
        assert hostile.stdout is not None and plain.stdout is not None
        servers, warm = hostile.stdout.readline().strip(), plain.stdout.readline().strip()
        player = child("--play", case, "--servers", servers, tree=tree, WARM_UP=warm)
        out, _ = player.communicate(timeout=2 * PLAY_S)
        if not out:
            return {"stall_ms": 0.0, "grown_mb": 0.0, "seconds": 0.0, "end": f"ended with status {player.returncode}"}
        found: dict[str, Any] = json.loads(out)
        return found
    finally:
        for process in (hostile, plain):
            process.communicate()


def serve_plain() -> None:
    """Serve a cluster without faults."""
    from aiokprod.testing import MockCluster

    with MockCluster(brokers=1) as cluster:
        cluster.create_topic("warm", partitions=1)
        print(cluster.bootstrap_servers, flush=True)
        sys.stdin.read()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)}; all if none is named")
    parser.add_argument("--tree", type=Path, default=ROOT)
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--serve")
    parser.add_argument("--serve-plain", action="store_true")
    parser.add_argument("--play")
    parser.add_argument("--servers")
    asked = parser.parse_args()
    if asked.serve_plain:
        serve_plain()
    elif asked.serve:
        serve(asked.serve)
    elif asked.play:
        print(json.dumps(asyncio.run(play(asked.play, asked.servers))), flush=True)
    else:
        return show(asked.cases or list(CASES), asked.tree.resolve(), markdown=asked.markdown)
    return 0


def show(cases: list[str], tree: Path, *, markdown: bool) -> int:
    """Run the cases; return 1 if one exceeds its limits."""
    status = 0
    for case in cases:
        found = measure(case, tree)
        is_dear = found["stall_ms"] > ALLOWED_STALL_MS or found["grown_mb"] > ALLOWED_MB
        status |= is_dear
        row = f"{found['stall_ms']:,.0f} ms", f"{found['grown_mb']:,.0f} MB", f"{found['seconds']:.1f} s", found["end"]
        if markdown:
            print(f"| {CASES[case]} | {row[0]} | {row[1]} | {row[3]} |", flush=True)
        else:
            print(f"{case:30}{row[0]:>12}{row[1]:>12}{row[2]:>10}  {'DEAR ' if is_dear else ''}{row[3]}", flush=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
