"""`value_serializer` and `key_serializer`: what stands in the log, what the registry is asked for, and what errors say."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from fake_registry import FakeRegistry

from aiokprod import Producer
from aiokprod.errors import ConfigError, DeliveryError, SerializationError
from aiokprod.integrations.schema_registry import RegistryError, SchemaRegistry, key_serializer, value_serializer
from aiokprod.integrations.schema_registry.registry import CLIENT
from aiokprod.testing import MockCluster

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [
            {"name": "id", "type": "string"},
            {"name": "amount", "type": "int"},
            {"name": "note", "type": ["null", "string"], "default": None},
        ],
    }
)
JSON_ORDER = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {
            "id": {"type": "string"},
            "items": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            "tags": {"type": "object", "additionalProperties": {"type": "string"}},
        },
        "required": ["id"],
    }
)
SECRET = "hunter2"


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster(1) as started:
        started.create_topic("orders")
        yield started


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as started:
        yield started


def send(cluster: MockCluster, *records: Any, topic: str = "orders", **options: Any) -> list[Any]:
    """Send values, or (key, value); return the errors of those that failed, None for the others."""

    async def work() -> list[Any]:
        async with Producer(cluster.bootstrap_servers, linger_ms=0, **options) as producer:
            sent = []
            for each in records:
                key, value = each if isinstance(each, tuple) else (None, each)
                sent.append(producer.send(topic, value, key=key))
            found = await asyncio.gather(*sent, return_exceptions=True)
        return [each if isinstance(each, BaseException) else None for each in found]

    return asyncio.run(work())


def values(cluster: MockCluster, topic: str = "orders") -> list[bytes | None]:
    return [each.value for each in cluster.records(topic)]


def said(error: DeliveryError) -> str:
    """Return all that a log with a traceback shows of an error."""
    return "".join(traceback.format_exception(error))


def test_avro_is_written_with_the_id_of_its_schema_and_the_registry_asked_once(
    cluster: MockCluster, registry: FakeRegistry
) -> None:
    registry.add("other-value", '"string"')
    own = value_serializer(SchemaRegistry(registry.url), ORDER)
    orders = [{"id": f"a{n}", "amount": n} for n in range(50)]
    assert send(cluster, *orders, None, value_serializer=own) == [None] * 51
    assert registry.requests == ["POST /subjects/orders-value/versions"]
    found = values(cluster)
    assert found[3] == b"\x00\x00\x00\x00\x02" + b"\x04a3\x06\x00" and found[-1] is None
    assert [each[6:8] for each in found[:10] if each] == [f"a{n}".encode() for n in range(10)]


def test_keys_and_values_share_a_registry_whose_connections_end_with_the_producer(
    cluster: MockCluster, registry: FakeRegistry
) -> None:
    shared = SchemaRegistry(registry.url)
    options = {
        "key_serializer": key_serializer(shared, '"string"'),
        "value_serializer": value_serializer(shared, ORDER),
    }
    for _ in range(2):  # each in an event loop of its own
        assert send(cluster, ("k", {"id": "a", "amount": 1}), **options) == [None]
    assert cluster.records("orders")[0].key == b"\x00\x00\x00\x00\x01\x02k"
    assert list(registry.subjects) == ["orders-key", "orders-value"]
    assert not shared._held
    assert len(registry.requests) == 4


def test_json_schema_and_protobuf_are_written_too(cluster: MockCluster, registry: FakeRegistry) -> None:
    from google.protobuf.struct_pb2 import ListValue, Struct

    as_json = value_serializer(registry.url, JSON_ORDER, format="json")
    assert send(cluster, {"id": "a7"}, value_serializer=as_json) == [None]
    written = values(cluster)[0] or b""
    assert written[:5] == b"\x00\x00\x00\x00\x01" and json.loads(written[5:]) == {"id": "a7"}
    as_protobuf = value_serializer(registry.url, ListValue)
    message = ListValue()
    message.append("x")
    [done, failed] = send(cluster, message, Struct(), value_serializer=as_protobuf)
    assert done is None and values(cluster)[1] == b"\x00\x00\x00\x00\x02\x02\x04" + message.SerializeToString()
    assert "takes ListValue, not Struct" in failed.message and "'google.protobuf.ListValue'" in failed.message


def test_a_dataclass_is_converted(cluster: MockCluster, registry: FakeRegistry) -> None:
    @dataclass
    class Order:
        id: str
        amount: int

    own = value_serializer(registry.url, ORDER, to_dict=asdict)
    assert send(cluster, Order("a7", 3), Order("a8", 3), value_serializer=own) == [None, None]
    assert values(cluster)[1] == b"\x00\x00\x00\x00\x01\x04a8\x06\x00"


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("topic", "orders-value"),
        ("record", "shop.Order"),
        ("topic_record", "orders-shop.Order"),
        (lambda topic, name: f"{name}@{topic}", "shop.Order@orders"),
    ],
)
def test_the_subject_is_named_as_asked(
    cluster: MockCluster, registry: FakeRegistry, subject: Any, expected: str
) -> None:
    own = value_serializer(registry.url, ORDER, subject=subject)
    [failed] = send(cluster, {"id": 1, "amount": 1}, value_serializer=own)
    assert list(registry.subjects) == [expected]
    assert repr(expected) in failed.message


def test_a_schema_without_a_name_cannot_name_its_subject(cluster: MockCluster, registry: FakeRegistry) -> None:
    own = value_serializer(registry.url, "{}", format="json", subject="record")
    [failed] = send(cluster, {}, value_serializer=own)
    assert "no name" in failed.message and "subject='topic'" in failed.advice


def test_the_id_is_put_into_a_header(cluster: MockCluster, registry: FakeRegistry) -> None:
    own = value_serializer(registry.url, ORDER, schema_id="header")
    assert send(cluster, *[{"id": "a", "amount": 1}] * 2, value_serializer=own) == [None, None]
    for record in cluster.records("orders"):
        assert record.value == b"\x02a\x02\x00"
        assert list(record.headers) == [("__value_schema_id", b"\x01" + (1).to_bytes(16, "big"))]


def test_a_registry_without_guids_is_told(cluster: MockCluster) -> None:
    with FakeRegistry(guids=False) as registry:
        own = value_serializer(registry.url, ORDER, schema_id="header")
        [failed] = send(cluster, {"id": "a", "amount": 1}, value_serializer=own)
    assert isinstance(failed, RegistryError) and "schema_id='prefix'" in failed.advice


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"id": 1, "amount": 1}, "field shop.Order.id takes string, and is int"),
        ({"id": "a", "note": SECRET}, "field shop.Order.amount takes int, and is NoneType (or is missing)"),
        ({"id": "a", "amount": 1, "note": [SECRET]}, "field shop.Order.note takes null or string, and is list"),
        (SECRET, "takes a dict, not str; to_dict=... can convert it"),
    ],
)
@pytest.mark.parametrize("is_known", [False, True])
def test_the_field_of_avro_that_does_not_fit_is_named_without_its_contents(
    cluster: MockCluster, registry: FakeRegistry, record: Any, expected: str, is_known: bool
) -> None:
    own = value_serializer(registry.url, ORDER)

    async def work() -> Any:
        async with Producer(cluster.bootstrap_servers, value_serializer=own) as producer:
            if is_known:
                await producer.send("orders", {"id": "a", "amount": 1})
            delivery = producer.send("orders", record)  # which raises nothing, whether the schema is known or not
            with pytest.raises(SerializationError) as caught:
                await delivery
            return caught.value

    failed = asyncio.run(work())
    assert type(failed) is SerializationError and not failed.retriable
    assert failed.message == f"value_serializer: {expected} (the Avro schema 'shop.Order', subject 'orders-value')"
    assert failed.topic == "orders" and SECRET not in said(failed)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"id": 7}, "field id takes string, and is integer"),
        ({SECRET: 1}, "field (the whole) lacks id"),
        ({"id": "a", "items": [{"n": SECRET}]}, "field items[].n takes integer, and is string"),
        ({"id": "a", "tags": {SECRET: None}}, "field tags.* takes string, and is null"),
        ([SECRET], "field (the whole) takes object, and is array"),
    ],
)
def test_the_field_of_json_schema_that_does_not_fit_is_named_without_its_contents(
    cluster: MockCluster, registry: FakeRegistry, record: Any, expected: str
) -> None:
    own = value_serializer(registry.url, JSON_ORDER, format="json")
    [failed] = send(cluster, record, value_serializer=own)
    assert failed.message == f"value_serializer: {expected} (the JSON schema 'Order', subject 'orders-value')"
    assert SECRET not in said(failed)


def test_a_record_that_fails_leaves_the_others_alone(cluster: MockCluster, registry: FakeRegistry) -> None:
    own = value_serializer(registry.url, ORDER)
    found = send(
        cluster, {"id": "a", "amount": 1}, {"id": "b"}, {"id": "c", "amount": 1}, value_serializer=own
    )  # fmt: skip
    assert [each is None for each in found] == [True, False, True]
    assert [each[6:7] for each in values(cluster) if each] == [b"a", b"c"]


@pytest.mark.parametrize("use_latest", [False, True])
def test_a_schema_that_is_not_registered_is_an_error_and_not_registered(
    cluster: MockCluster, registry: FakeRegistry, use_latest: bool
) -> None:
    own = value_serializer(registry.url, ORDER, register=False, use_latest=use_latest)
    [failed] = send(cluster, {"id": "a", "amount": 1}, value_serializer=own)
    assert isinstance(failed, RegistryError) and not failed.retriable
    assert "does not have the subject (subject 'orders-value'): 40401" in failed.message
    assert "register=True" in failed.advice and "register=True" in said(failed)
    assert not registry.subjects


def test_a_schema_that_is_registered_is_found(cluster: MockCluster, registry: FakeRegistry) -> None:
    registry.add("orders-value", ORDER)
    own = value_serializer(registry.url, ORDER, register=False)
    assert send(cluster, {"id": "a", "amount": 1}, value_serializer=own) == [None]
    assert registry.requests == ["POST /subjects/orders-value"]


def test_the_newest_version_is_written_with(cluster: MockCluster, registry: FakeRegistry) -> None:
    registry.add("orders-value", '"string"')
    registry.add("orders-value", ORDER)
    own = value_serializer(registry.url, '"string"', use_latest=True)
    assert send(cluster, {"id": "a", "amount": 1}, value_serializer=own) == [None]
    assert (values(cluster)[0] or b"")[:5] == b"\x00\x00\x00\x00\x02"


def test_a_registry_that_is_down_is_told_and_worth_another_try(cluster: MockCluster) -> None:
    with FakeRegistry() as registry:
        url = registry.url
    own = value_serializer(SchemaRegistry(url, options={"max.retries": 0}), ORDER)
    [failed] = send(cluster, {"id": SECRET, "amount": 1}, value_serializer=own)
    assert isinstance(failed, RegistryError) and failed.retriable
    assert f"the schema registry at {url} cannot be reached" in failed.message
    assert "send the record again" in failed.advice and SECRET not in said(failed)


@pytest.mark.parametrize(
    ("answer", "part", "retriable"),
    [
        ((503, {"error_code": 50003, "message": "no leader"}), "answers 503 (subject 'orders-value'): no leader", True),
        ((409, {"error_code": 409, "message": "field removed"}), "not compatible", False),
        ((422, {"error_code": 42201, "message": "bad schema"}), "bad schema (42201)", False),
        ((403, {"error_code": 403, "message": "no"}), "refuses this user: 403", False),
        ((200, b"<html>"), "answers with something that is no JSON", False),
    ],
)
def test_what_a_registry_answers_is_told(
    cluster: MockCluster, registry: FakeRegistry, answer: tuple[int, Any], part: str, retriable: bool
) -> None:
    registry.refusals["/subjects"] = answer
    own = value_serializer(SchemaRegistry(registry.url, options={"max.retries": 0}), ORDER)
    [failed] = send(cluster, {"id": "a", "amount": 1}, value_serializer=own)
    assert isinstance(failed, RegistryError) and failed.retriable is retriable
    assert part in failed.message and failed.advice in said(failed)


@pytest.mark.parametrize("is_in_url", [False, True])
def test_credentials_are_sent_and_shown_nowhere(
    cluster: MockCluster, is_in_url: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with FakeRegistry(user_info=f"me:{SECRET}:@") as registry:
        if is_in_url:
            shared = SchemaRegistry(registry.url.replace("//", f"//me:{SECRET}%3A%40@"))
        else:
            shared = SchemaRegistry(registry.url, username="me", password=f"{SECRET}:@")
        own = value_serializer(shared, ORDER)
        assert send(cluster, {"id": "a", "amount": 1}, value_serializer=own) == [None]
        wrong = value_serializer(SchemaRegistry(registry.url, username="me", password="wr0ng"), ORDER)
        [failed] = send(cluster, {"id": "a", "amount": 1}, value_serializer=wrong)
    assert "refuses this user: 401" in failed.message and "password" in failed.advice
    assert repr(own) == f"value_serializer(SchemaRegistry('{registry.url}'), Avro schema 'shop.Order')"
    shown = caplog.text + said(failed) + repr(shared) + shared.url
    assert SECRET not in shown and "wr0ng" not in shown


def test_a_registry_behind_tls_is_reached_with_its_authority_only(cluster: MockCluster, tmp_path: Any) -> None:
    import ssl

    import trustme

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(file))
    with FakeRegistry(tls=context) as registry:
        options = {"ssl.ca.location": str(file), "max.retries": 0}
        own = value_serializer(SchemaRegistry(registry.url, options=options), ORDER)
        assert send(cluster, {"id": "a", "amount": 1}, value_serializer=own) == [None]
        other = value_serializer(SchemaRegistry(registry.url, options={"max.retries": 0}), ORDER)
        [failed] = send(cluster, {"id": "a", "amount": 1}, value_serializer=other)
    assert "CERTIFICATE" in failed.message and "ssl.ca.location" in failed.advice


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ({"url": "localhost:8081"}, "http://HOST:PORT"),
        ({"url": f"ftp://u:{SECRET}@h"}, "http://HOST:PORT"),
        ({"url": "http://u:p@h", "username": "u"}, "has a user too"),
        ({"url": "http://h", "password": SECRET}, "no username"),
        ({"url": "http://h", "timeout": 0}, "timeout"),
        ({"url": "http://h", "timeout": "10"}, "timeout"),
        ({"url": "http://h", "timeout": True}, "timeout"),
        ({"url": {"url": "http://h", "basic.auth.user.info": SECRET}}, "takes the URL first, .*, and not a mapping"),
        ({"url": ["http://h"]}, "one str with commas, not list"),
        ({"url": None}, "a str, not NoneType"),
        ({"url": "http://h:80x"}, "http://HOST:PORT"),
        ({"url": "http://h", "username": "u"}, "a username, but no password"),
        ({"url": "http://h", "username": 5, "password": SECRET}, "username is a str, not int"),
        ({"url": "http://h", "username": "u", "password": 5}, "password is a str, not int"),
        ({"url": "http://h", "options": "max.retries=0"}, "options is a mapping, not str"),
        ({"url": "http://h", "options": {"url": "http://h"}}, "'url' is an argument"),
        ({"url": "http://h", "options": {"timeout": 5}}, "'timeout' is an argument"),
        ({"url": f"http://u:{SECRET}@h", "options": {"basic.auth.user.info": f"u:{SECRET}"}}, "two users"),
        ({"url": "http://h", "options": {"ssl.ca.locaton": "x"}}, "not taken: Unrecognized properties: ssl.ca.locaton"),
        ({"url": "http://h", "options": {"max.retries": "x"}}, "not taken: max.retries must be a number"),
        ({"url": "http://h", "options": {"ssl.ca.location": "/nowhere.pem"}}, "not taken"),
    ],
)
def test_wrong_arguments_of_the_registry_are_refused(arguments: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=part) as caught:
        SchemaRegistry(**arguments)
    assert SECRET not in said(caught.value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("schema", "arguments", "part"),
    [
        (JSON_ORDER, {}, "needs format='json'"),
        ("{", {}, "the schema is no JSON"),
        ('{"type": "strung"}', {}, "no Avro schema"),
        ('{"type": "strung"}', {"format": "json"}, "no JSON Schema"),
        (7, {}, "not int"),
        (ORDER, {"format": "xml"}, "'avro' or 'json'"),
        (ORDER, {"schema_id": "footer"}, "'prefix' or 'header'"),
        (ORDER, {"subject": "x"}, "'topic_record'"),
        (ORDER, {"subject": lambda topic: topic}, "a function of the topic and the schema's name"),
        (ORDER, {"to_dict": "asdict"}, "to_dict is a function of one argument"),
        (ORDER, {"to_dict": lambda data, context: data}, "to_dict is a function of one argument"),
        (json.loads(ORDER), {}, r"not dict: json\.dumps\(schema\) is its text"),
        (ORDER, {"options": {"auto.register.schema": True}}, "options: Unrecognized properties: auto.register.schema"),
        (ORDER, {"options": {"normalize.schemas": 1}}, "normalize.schemas must be a boolean"),
        (JSON_ORDER, {"format": "json", "options": {"colour": 1}}, "colour"),
        (ORDER, {"options": ["normalize.schemas"]}, "options is a mapping, not list"),
    ],
)
def test_wrong_arguments_of_a_serializer_are_refused(schema: Any, arguments: dict[str, Any], part: str) -> None:
    with pytest.raises(ConfigError, match=part):
        value_serializer("http://h", schema, **arguments)


@pytest.mark.parametrize("wrong", [{"url": "http://h", "basic.auth.user.info": SECRET}, None, 5])
def test_a_registry_is_a_schema_registry_or_its_url(wrong: Any) -> None:
    for make in (value_serializer, key_serializer):
        with pytest.raises(ConfigError, match="a SchemaRegistry or its URL") as caught:
            make(wrong, ORDER)
        assert SECRET not in said(caught.value)  # type: ignore[arg-type]


def test_a_serializer_of_keys_is_refused_for_values(cluster: MockCluster, registry: FakeRegistry) -> None:
    with pytest.raises(ConfigError, match=r"make it with value_serializer"):
        send(cluster, value_serializer=key_serializer(registry.url, ORDER))


def test_the_client_that_has_shown_that_its_options_are_right_is_used_by_the_first_loop(
    cluster: MockCluster, registry: FakeRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Making one takes 20 ms: it reads the certificates of all authorities."""
    made: list[Any] = []
    make = CLIENT.new_client
    monkeypatch.setattr(CLIENT, "new_client", lambda options: made.append(make(options)) or made[-1])
    shared = SchemaRegistry(registry.url)
    for count in (1, 2):
        own = value_serializer(shared, ORDER)
        assert send(cluster, {"id": "a", "amount": 1}, value_serializer=own) == [None]
        assert len(made) == count


def test_a_schema_with_references_is_written(cluster: MockCluster, registry: FakeRegistry) -> None:
    from confluent_kafka.schema_registry import Schema, SchemaReference

    registry.add("money", '{"type": "record", "name": "Money", "fields": [{"name": "n", "type": "int"}]}')
    text = '{"type": "record", "name": "Bill", "fields": [{"name": "sum", "type": "Money"}]}'
    schema = Schema(text, "AVRO", [SchemaReference("Money", "money", 1)])
    own = value_serializer(registry.url, schema)
    assert send(cluster, {"sum": {"n": 5}}, value_serializer=own) == [None]
    assert values(cluster)[0] == b"\x00\x00\x00\x00\x02\x0a"


def test_the_serializer_is_called_at_once_where_the_schema_is_known(registry: FakeRegistry) -> None:
    own = value_serializer(registry.url, ORDER)

    async def work() -> Any:
        first = own("orders", [], {"id": "a", "amount": 1})
        assert not isinstance(first, bytes | None)
        data = await first
        assert own("orders", [], {"id": "a", "amount": 1}) == data
        other = own("bills", [], {"id": "a", "amount": 1})
        assert not isinstance(other, bytes | None)
        await other
        await own.close()

    asyncio.run(work())
