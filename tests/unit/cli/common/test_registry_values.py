"""`read --registry`: what serializers of a schema registry have written is shown as JSON, the rest as bytes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from cli_runs import objects, ok, run, write
from fake_registry import FakeRegistry

from aiokprod import Producer
from aiokprod.cli.common.registry_values import text_of
from aiokprod.integrations.schema_registry import SchemaRegistry, key_serializer, value_serializer
from aiokprod.testing import MockCluster

ORDER = (
    '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}]}'
)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as started:
        started.create_topic("t")
        yield started


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as started:
        yield started


def produce(cluster: MockCluster, *values: Any, key: Any = None, **options: Any) -> None:
    async def work() -> None:
        async with Producer(cluster.bootstrap_servers, **options) as producer:
            for value in values:
                await producer.send("t", value, key=key)

    asyncio.run(work())


def test_avro_json_and_protobuf_are_shown_as_json(cluster: MockCluster, registry: FakeRegistry) -> None:
    from google.protobuf.struct_pb2 import Struct

    message = Struct()
    message.update({"id": "p"})
    shared = SchemaRegistry(registry.url)
    produce(cluster, {"id": "a\n\x1b", "n": 1}, value_serializer=value_serializer(shared, ORDER))
    as_json = value_serializer(shared, '{"title": "J"}', format="json")
    produce(cluster, {"id": "j"}, value_serializer=as_json)
    produce(cluster, message, value_serializer=value_serializer(shared, Struct))
    shown = ok(cluster, "read", "t", "--registry", registry.url)
    assert shown == '{"id": "a\\n\\u001b", "n": 1}\n{"id": "j"}\n{"id": "p"}\n'
    found = objects(ok(cluster, "read", "t", "--registry", registry.url, "--json"))
    assert [each["value"] for each in found] == [{"id": "a\n\x1b", "n": 1}, {"id": "j"}, {"id": "p"}]
    assert ok(cluster, "read", "t", "--registry", registry.url, "--grep", '"id": "j"') == '{"id": "j"}\n'


def test_keys_are_shown_where_they_can_be_read(cluster: MockCluster, registry: FakeRegistry) -> None:
    shared = SchemaRegistry(registry.url)
    options = {
        "key_serializer": key_serializer(shared, '"string"'),
        "value_serializer": value_serializer(shared, ORDER),
    }
    produce(cluster, {"id": "a", "n": 1}, key="k", **options)
    options["key_serializer"] = lambda number: number.to_bytes(8, "big")
    produce(cluster, {"id": "b", "n": 1}, {"id": "c", "n": 1}, key=7, **options)
    registry.requests.clear()
    done = run(cluster, "read", "t", "--registry", registry.url, "-k")
    assert done.stdout.splitlines() == [
        '"k"\t{"id": "a", "n": 1}',
        '\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07\t{"id": "b", "n": 1}',
        '\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x07\t{"id": "c", "n": 1}',
    ]
    assert done.stderr == "" and registry.requests.count("GET /schemas/ids/0") == 1


def test_what_cannot_be_read_stays_bytes_and_a_line_says_why(cluster: MockCluster, registry: FakeRegistry) -> None:
    number = registry.add("t-value", ORDER).to_bytes(4, "big")
    write(cluster, "t", [b"plain", None, b"\x00\x00\x00\x00\x63x", b"\x00" + number + b"\x50secret", *[b"x"] * 4])
    done = run(cluster, "read", "t", "--registry", registry.url)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[:4] == [
        "plain",
        "\\N",
        "\\x00\\x00\\x00\\x00cx",
        "\\x00\\x00\\x00\\x00\\x01Psecret",
    ]
    told = done.stderr.splitlines()
    assert len(told) == 6 and "t-" in told[0] and "does not begin with the id" in told[0]
    assert "does not have this schema" in told[1] and "does not fit the schema with the id 1" in told[2]
    assert told[-1].endswith("7 values stay bytes") and "secret" not in done.stderr


def test_a_registry_that_does_not_answer_ends_the_command(cluster: MockCluster, registry: FakeRegistry) -> None:
    write(cluster, "t", [b"\x00\x00\x00\x00\x01x"])
    registry.refusals["/schemas"] = (403, {"error_code": 403, "message": "no"})
    done = run(cluster, "read", "t", "--registry", registry.url.replace("//", "//me:hunter2@"))
    assert done.exit_code == 2 and "refuses this user: 403" in done.stderr and "--registry" in done.stderr
    assert "hunter2" not in done.output


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--registry", "localhost:8081"), "http://HOST:PORT"),
        (("--registry", "http://h", "--raw"), "leave --raw and --hex out"),
        (("--registry", "http://h", "--hex"), "leave --raw and --hex out"),
    ],
)
def test_wrong_options_are_refused(cluster: MockCluster, arguments: tuple[str, ...], part: str) -> None:
    done = run(cluster, "read", "t", *arguments)
    assert done.exit_code == 2 and part in done.stderr and done.stderr.count("\n") == 1


def test_values_are_json_whatever_their_types() -> None:
    found = {"d": date(2026, 1, 31), "n": Decimal("1.50"), "b": b"\xff", "t": b"x", "l": [(1, None)]}
    assert json.loads(text_of(found)) == {
        "d": "2026-01-31", "n": "1.50", "b": {"base64": "/w=="}, "t": "x", "l": [[1, None]],
    }  # fmt: skip
