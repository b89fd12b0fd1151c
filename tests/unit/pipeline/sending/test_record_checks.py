"""`RecordChecks`: what `send` is given is checked at once, to the byte, and copied."""

from __future__ import annotations

import asyncio
from collections import ChainMap, OrderedDict, deque
from collections.abc import Generator
from types import MappingProxyType
from typing import Any

import pytest
from rig import run, started, values
from source_points import each_fault

from aiokprod import ProducerConfig, ProducerInterceptor, Record
from aiokprod.errors import (
    AiokprodError,
    InvalidPartitionError,
    InvalidTimestampError,
    InvalidTopicError,
    RecordTooLargeError,
    RecordTypeError,
    SerializationError,
    UsageError,
)
from aiokprod.logs import StateLog
from aiokprod.model import Persistence
from aiokprod.pipeline.partition.batch import BATCH_OVERHEAD_BYTES
from aiokprod.pipeline.partition.settings import RECORD_OVERHEAD_BYTES
from aiokprod.pipeline.sending.record_checks import LAST_TIMESTAMP_MS, RecordChecks
from aiokprod.records.batch import record_size_bound
from aiokprod.records.headers import encode_headers


def checks_with(**options: Any) -> RecordChecks:
    return RecordChecks(ProducerConfig(bootstrap_servers="localhost", **options), StateLog("producer"))


def frozen(into: RecordChecks, **options: Any) -> tuple[Any, ...]:
    """Pass a record through all its checks, in their order."""
    record = Record(topic="t", **options)
    into.checked_options(record)
    return into.frozen(record)


# ---------------------------------------------------------------------- topics
@pytest.mark.parametrize("topic", ["t", "a.b-c_D9", "...", "x" * 249, "0"])
def test_a_legal_topic_name_is_taken_and_remembered(topic: str) -> None:
    checks = checks_with()
    checks.checked_topic(topic)
    assert checks.valid_topics == {topic}


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "in/valid", "a b", "x" * 250, "t\n", "t\x00", "tüpic", "a:b", "\ud800", "x" * 100_000]
)
def test_an_illegal_topic_name_is_refused_at_once_and_not_repeated_in_full(topic: str) -> None:
    """faults: T3"""
    checks = checks_with()
    with pytest.raises(InvalidTopicError) as raised:
        checks.checked_topic(topic)
    assert isinstance(raised.value, UsageError)
    assert len(str(raised.value)) < 1_000
    assert not checks.valid_topics


@pytest.mark.parametrize("topic", [None, b"t", 7, object()])
def test_a_topic_that_is_no_str_is_refused(topic: object) -> None:
    """faults: T3, M16"""
    with pytest.raises(RecordTypeError, match="topic must be a str"):
        checks_with().checked_topic(topic)


def test_remembering_topic_names_is_bounded() -> None:
    checks = checks_with()
    for number in range(10_050):
        checks.checked_topic(f"t{number}")
    assert len(checks.valid_topics) == 10_000


# ---------------------------------------------------------------------- types
@pytest.mark.parametrize("wrong", ["text", 7, 1.5, ["a"], {"a": 1}, object(), True])
@pytest.mark.parametrize("what", ["key", "value"])
def test_a_key_or_value_that_is_not_bytes_names_what_it_is_and_the_way_out(what: str, wrong: object) -> None:
    """faults: M12"""
    with pytest.raises(RecordTypeError, match=f"{what} must be bytes or None, not {type(wrong).__name__}") as raised:
        frozen(checks_with(), **{what: wrong})
    assert f"{what}_serializer" in str(raised.value)
    assert isinstance(raised.value, TypeError)


def test_a_record_where_a_part_of_it_is_wanted_names_send_many() -> None:
    checks = checks_with()
    for wrong in (lambda: frozen(checks, value=Record(value=b"x")), lambda: checks.checked_topic(Record(value=b"x"))):
        with pytest.raises(RecordTypeError, match=r"not Record: send_many\(topic, \[record\]\) takes records whole"):
            wrong()


def test_none_is_not_the_empty_bytes() -> None:
    """faults: M12"""
    checks = checks_with()
    assert frozen(checks, key=None, value=None)[:3] == (None, None, None)
    assert frozen(checks, key=b"", value=b"", headers=())[:3] == (b"", b"", None)


def test_what_a_caller_may_change_is_copied() -> None:
    """faults: M10"""
    checks = checks_with()
    key, value, header = bytearray(b"key"), bytearray(b"value"), bytearray(b"h")
    pairs: list[Any] = [["name", header], ("other", None)]
    taken = frozen(checks, key=key, value=memoryview(value), headers=pairs)
    for changed in (key, value, header):
        changed[:1] = b"X"
    pairs[0][0] = "changed"
    pairs.append(("more", b""))
    assert taken[:3] == (b"key", b"value", encode_headers([("name", b"h"), ("other", None)]))
    assert all(type(each) is bytes for each in taken[:3])


@pytest.mark.parametrize("where", ["key", "value", "headers"])
def test_a_released_view_is_refused_like_any_other_type(where: str) -> None:
    view = memoryview(b"gone")
    view.release()
    given = {"key": b"k", "value": b"v", "headers": []} | {where: [("h", view)] if where == "headers" else view}
    with pytest.raises(RecordTypeError, match="released") as refused:
        frozen(checks_with(), **given)
    assert ("header 'h'" if where == "headers" else where) in str(refused.value)


def test_headers_come_as_pairs_a_dict_or_anything_one_can_walk_once() -> None:
    freeze = RecordChecks.header_pairs
    expected = [("a", b"1"), ("b", None)]
    assert freeze([("a", b"1"), ("b", None)], "t") == expected
    assert freeze({"a": b"1", "b": None}, "t") == expected
    assert freeze((pair for pair in expected), "t") == expected
    assert freeze(deque([["a", b"1"], ["b", None]]), "t") == expected
    assert freeze([("a", b"1"), ("a", b"1")], "t") == [("a", b"1"), ("a", b"1")]
    for none in ([], iter(())):
        assert freeze(none, "t") == []
        assert RecordChecks.encoded_headers(none, "t") is None
    assert RecordChecks.encoded_headers(expected, "t") == encode_headers(expected)


@pytest.mark.parametrize(
    "wrong",
    [
        "a=b", b"ab", 7, ["ab"], [("a",)], [("a", b"b", b"c")], [(b"a", b"b")], [(None, b"b")], [("a", "b")],
        [("a", 7)], {"a": "b"}, {1: b"b"}, [None], [7],
    ],
)  # fmt: skip
def test_headers_of_any_other_shape_are_refused(wrong: object) -> None:
    """faults: M12"""
    with pytest.raises(RecordTypeError, match="header"):
        RecordChecks.header_pairs(wrong, "t")


def test_the_name_of_a_header_without_a_form_in_utf8_is_told_in_our_words() -> None:
    with pytest.raises(RecordTypeError, match="cannot be encoded in UTF-8: it must be a text without lone") as raised:
        RecordChecks.header_pairs([("\udcff", b"v")], "t")
    assert "codec" not in str(raised.value)


def test_a_text_as_the_value_of_a_header_is_told_with_what_to_do() -> None:
    with pytest.raises(RecordTypeError, match="the header 'a' must be bytes or None, not str: encode it"):
        RecordChecks.header_pairs({"a": "b"}, "t")


# ---------------------------------------------------------------------- numbers
@pytest.mark.parametrize("wrong", ["0", 1.0, True, b"0", object()])
def test_a_partition_that_is_no_int_is_refused(wrong: object) -> None:
    with pytest.raises(RecordTypeError, match="partition"):
        frozen(checks_with(), partition=wrong)


@pytest.mark.parametrize("wrong", [-1, 2**31, -(2**40)])
def test_a_partition_that_cannot_exist_is_refused(wrong: int) -> None:
    with pytest.raises(InvalidPartitionError):
        frozen(checks_with(), partition=wrong)


@pytest.mark.parametrize("partition", [0, 2**31 - 1])
def test_any_partition_that_can_exist_is_left_to_the_metadata(partition: int) -> None:
    frozen(checks_with(), partition=partition)


@pytest.mark.parametrize("wrong", [1.5, float("nan"), "now", True, None.__class__])
def test_a_timestamp_that_is_no_int_is_refused(wrong: object) -> None:
    """faults: M16"""
    with pytest.raises(RecordTypeError, match="timestamp_ms"):
        frozen(checks_with(), timestamp_ms=wrong)


@pytest.mark.parametrize("wrong", [-1, -(2**63), 2**63, 10**30])
def test_a_timestamp_before_1970_or_beyond_its_field_is_refused(wrong: int) -> None:
    """faults: M16"""
    with pytest.raises(InvalidTimestampError):
        frozen(checks_with(), timestamp_ms=wrong)


@pytest.mark.parametrize("timestamp", [0, 1, LAST_TIMESTAMP_MS])
def test_a_timestamp_at_either_end_is_taken(timestamp: int) -> None:
    assert frozen(checks_with(), timestamp_ms=timestamp)[3] == timestamp


@pytest.mark.parametrize(("timestamp", "lines"), [(1_785_000_000, 1), (10**9, 1), (10**11 - 1, 1), (7, 0), (10**11, 0)])
def test_a_timestamp_that_looks_like_seconds_is_a_warning_once(
    timestamp: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    checks = checks_with()
    for _ in range(3):
        assert frozen(checks, timestamp_ms=timestamp)[3] == timestamp
    told = [f"{record.levelname} {record.getMessage()}" for record in caplog.records]
    assert len(told) == lines
    assert all(f"WARNING producer: timestamp_ms={timestamp} of a record for 't' is" in line for line in told)


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "1", True, -0.0])
def test_a_timeout_is_a_number_of_seconds_above_0(wrong: object) -> None:
    with pytest.raises(RecordTypeError, match="timeout"):
        frozen(checks_with(), timeout=wrong)


@pytest.mark.parametrize("wrong", [10**400, 10**309, float("inf"), 1e10])
def test_a_timeout_no_timer_takes_is_refused(wrong: float) -> None:
    """An OverflowError out of `send`, once the record was taken; `flush` hung for ever."""
    with pytest.raises(RecordTypeError, match="timeout must be at most"):
        frozen(checks_with(), timeout=wrong)


@pytest.mark.parametrize("timeout", [1, 0.001, 10**9, 1e9])
def test_any_other_timeout_is_taken_as_a_float(timeout: float) -> None:
    seconds = RecordChecks.checked_timeout(timeout, "t")
    assert type(seconds) is float
    assert seconds == timeout


def test_a_send_with_a_timeout_that_is_refused_leaves_nothing_behind() -> None:
    """In a batch, and parked."""

    async def scenario() -> None:
        async with started("t", "u") as (cluster, producer):
            await producer.partitions_for("t")
            for topic in ("t", "u"):
                with pytest.raises(RecordTypeError):
                    producer.send(topic, b"x", timeout=10**400)
            assert producer.health().buffered_bytes == 0
            await producer.flush()
            assert values(cluster, "t") == values(cluster, "u") == []

    run(scenario())


# ---------------------------------------------------------------------- sizes
HEADERS = (("h", b"x" * 50), ("näme", None))


@pytest.mark.parametrize("headers", [(), HEADERS])
@pytest.mark.parametrize("key", [None, b"k" * 30])
@pytest.mark.parametrize(("request_bytes", "buffer"), [(1_000, 5_000), (20_000, 20_000), (40_000, 40_000)])
def test_the_limit_is_exact_to_the_byte(
    request_bytes: int, buffer: int, key: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    """faults: M6, M7"""
    checks = checks_with(max_request_size=request_bytes, buffer_memory=buffer, batch_size=500)
    in_request, in_buffer = request_bytes - BATCH_OVERHEAD_BYTES, buffer - RECORD_OVERHEAD_BYTES
    rest = min(in_request, in_buffer)  # what is charged beside the record must have room, too
    length = rest
    header_bytes = len(encode_headers(headers)) if headers else 0
    while record_size_bound(-1 if key is None else len(key), length, header_bytes) > rest:
        length -= 1
    for shorter in (1, 0):
        taken = frozen(checks, key=key, value=b"v" * (length - shorter), headers=headers)
        assert taken[4] <= rest
    with pytest.raises(RecordTooLargeError) as raised:
        frozen(checks, key=key, value=b"v" * (length + 1), headers=headers)
    name, limit = ("max_request_size", request_bytes) if in_request <= in_buffer else ("buffer_memory", buffer)
    assert name in str(raised.value)
    assert str(limit) in str(raised.value)
    assert raised.value.persistence is Persistence.NOT_PERSISTED


def test_headers_count_towards_the_limit() -> None:
    """faults: M7"""
    checks = checks_with(max_request_size=1_000, batch_size=500)
    frozen(checks, value=b"v" * 800)
    with pytest.raises(RecordTooLargeError):
        frozen(checks, value=b"v" * 800, headers=[("h", b"x" * 200)])


def test_a_record_at_the_limit_arrives_and_one_byte_more_is_refused_at_once() -> None:
    """faults: M6, M7"""

    async def scenario() -> None:
        options = {"max_request_size": 2_000, "buffer_memory": 4_000, "batch_size": 500}
        async with started("t", **options) as (cluster, producer):
            length = 2_000 - BATCH_OVERHEAD_BYTES - record_size_bound(-1, 0, 0)
            for size in (length - 1, length):
                await producer.send("t", b"x" * size)
            with pytest.raises(RecordTooLargeError):
                producer.send("t", b"x" * (length + 1))
            assert [len(value or b"") for value in values(cluster, "t")] == [length - 1, length]
            assert producer.health().buffered_bytes == 0

    run(scenario())


# ---------------------------------------------------------------------- serializers
def test_a_serializer_sees_topic_headers_and_data_and_may_add_headers() -> None:
    def serialize(topic: str, headers: list[tuple[str, bytes | None]], data: object) -> bytes:
        headers.append(("schema", topic.encode()))
        return repr(data).encode()

    checks = checks_with(value_serializer=serialize)
    record = Record(topic="t", value=[1], headers={"a": b"b"})
    assert checks.serialize(record) == []
    assert checks.frozen(record)[1:3] == (b"[1]", encode_headers([("a", b"b"), ("schema", b"t")]))


@pytest.mark.parametrize("make", [dict, MappingProxyType, ChainMap, OrderedDict])
def test_headers_may_be_any_mapping(make: Any) -> None:
    assert checks_with().header_pairs(make({"a": b"b", "n": None}), "t") == [("a", b"b"), ("n", None)]


@pytest.mark.parametrize("which", ["key", "value"])
def test_a_serializer_that_raises_fails_its_record_without_showing_its_text(which: str) -> None:
    """faults: M12"""

    def broken(data: object) -> bytes:
        raise RuntimeError("secret of the record")

    checks = checks_with(**{f"{which}_serializer": broken})
    with pytest.raises(SerializationError, match=f"{which}_serializer raised RuntimeError") as raised:
        checks.serialize(Record(topic="t", key=1, value=2))
    assert isinstance(raised.value.__cause__, RuntimeError)
    assert "secret" not in str(raised.value)
    assert raised.value.topic == "t"


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "awaitable"])
def test_a_serializer_may_fail_a_record_in_words_of_its_own(is_async: bool) -> None:
    def refuse(data: object) -> bytes:
        raise SerializationError("no schema for orders")

    async def refuse_later(data: object) -> bytes:
        return refuse(data)

    async def scenario() -> None:
        checks = checks_with(value_serializer=refuse_later if is_async else refuse)
        record = Record(topic="t", value=2)
        with pytest.raises(SerializationError, match="no schema for orders") as raised:
            checks.serialize(record)
            await checks.finish(record)
        assert raised.value.topic == "t"

    run(scenario())


def test_the_wait_for_a_serializer_that_is_thrown_away_ends_without_an_error() -> None:
    class Never:
        def __await__(self) -> Generator[None, None, bytes]:
            yield
            return b"v"

    waiting = checks_with().finish(Record(topic="t", value=Never()))
    waiting.send(None)
    waiting.close()  # as the loop's end and the collector do; another exception would be told as ignored


@pytest.mark.parametrize("result", ["text", 7, [b"x"], object()])
def test_a_serializer_that_returns_no_bytes_fails_its_record(result: object) -> None:
    """faults: M12"""
    checks = checks_with(value_serializer=lambda data: result)
    record = Record(topic="t", value=1)
    checks.serialize(record)
    with pytest.raises(SerializationError, match=f"returned {type(result).__name__}"):
        checks.frozen(record)


def test_a_failing_record_leaves_the_next_one_and_the_buffer_alone() -> None:
    """faults: M12"""

    def serialize(data: Any) -> Any:
        if data == "raise":
            raise ValueError(data)
        return 7 if data == "int" else str(data).encode()

    async def scenario() -> None:
        async with started("t", value_serializer=serialize) as (cluster, producer):
            good = [producer.send("t", "a")]
            for bad in ("raise", "int"):
                with pytest.raises(SerializationError):
                    producer.send("t", bad)
            for wrong in ({"partition": -1}, {"timestamp_ms": -1}, {"headers": [("a", "b")]}, {"timeout": 0}):
                with pytest.raises(AiokprodError):
                    producer.send("t", "x", **wrong)
            good.append(producer.send("t", "b"))
            assert [(await delivery).offset for delivery in good] == [0, 1]
            assert values(cluster, "t") == [b"a", b"b"]
            assert producer.health().buffered_bytes == 0

    run(scenario())


def test_an_illegal_record_makes_no_request() -> None:
    """faults: T3"""

    async def scenario() -> None:
        async with started("t") as (cluster, producer):
            await producer.send("t", b"v")
            before = cluster.requests_seen("Metadata"), cluster.requests_seen("Produce")
            for topic in ("in/valid", "", "x" * 250, None, 7, b"t"):
                with pytest.raises(UsageError):
                    producer.send(topic, b"v")  # type: ignore[arg-type]
            await producer.flush()
            assert (cluster.requests_seen("Metadata"), cluster.requests_seen("Produce")) == before

    run(scenario())


# ---------------------------------------------------------------------- the life of the hooks
class Closes(ProducerInterceptor):
    """An interceptor, or a serializer, that notes how often it is closed; its close may raise."""

    def __init__(self, raised: type[BaseException] | None = None) -> None:
        self.closes = 0
        self.raised = raised

    def __call__(self, data: Any) -> Any:
        return data

    def configure(self, config: Any, is_key: bool = False) -> None:
        """Be told of either kind."""

    def close(self) -> Any:
        self.closes += 1
        if self.raised is not None:
            raise self.raised
        closed = asyncio.get_running_loop().create_future()
        closed.set_result(None)
        return closed


def hooked(*raised: type[BaseException] | None) -> tuple[RecordChecks, list[Closes]]:
    """Return checks with two interceptors and two serializers, configured, that raise in their close."""
    hooks = [Closes(each) for each in raised]
    checks = checks_with(interceptors=hooks[:2], key_serializer=hooks[2], value_serializer=hooks[3])
    checks.configure()
    return checks, hooks


def test_every_hook_is_closed_once_for_each_start() -> None:
    async def scenario() -> None:
        checks, hooks = hooked(RuntimeError, None, asyncio.CancelledError, None)
        for number in (1, 2):
            await checks.close(0.5)
            await checks.close(0.5)
            assert [hook.closes for hook in hooks] == [number] * 4
            checks.configure()

    run(scenario())


@pytest.mark.parametrize("ends", [SystemExit, KeyboardInterrupt])
def test_a_close_that_ends_the_program_ends_it_behind_those_of_the_other_hooks(ends: type[BaseException]) -> None:
    """A notebook's loop goes on after Ctrl-C: the other hooks were never closed."""
    found: list[Closes] = []

    async def scenario() -> None:
        checks, hooks = hooked(ends, None, ends, None)
        found.extend(hooks)
        await checks.close(0.5)
        await asyncio.get_running_loop().create_future()  # which the end of the loop cancels

    with pytest.raises(ends):
        asyncio.run(scenario())
    assert [hook.closes for hook in found] == [1] * 4


@pytest.mark.pure("an exception is raised between two lines of the sources")
def test_hooks_that_an_exception_between_two_lines_has_left_are_closed_by_the_next_call() -> None:
    async def scenario() -> None:
        for fault in each_fault(RecursionError):
            checks, hooks = hooked(None, None, None, None)
            with fault:
                await checks.close(0.5)
            await checks.close(0.5)
            assert [hook.closes for hook in hooks] == [1] * 4, fault

    run(scenario())


@pytest.mark.parametrize("value", [("k", b"v"), ["k", b"v"], {"key": b"k", "value": b"v"}])
def test_a_pair_or_a_dict_is_answered_with_how_a_record_with_a_key_is_written(value: object) -> None:
    with pytest.raises(RecordTypeError) as raised:
        RecordChecks.to_bytes(value, "value", "t")
    assert "Record(value, key=key) in a list for send_many, and send(topic, value, key) alone" in raised.value.message
    assert "value_serializer" in raised.value.message
    with pytest.raises(RecordTypeError) as raised:
        RecordChecks.to_bytes(value, "key", "t")
    assert "Record(" not in raised.value.message
