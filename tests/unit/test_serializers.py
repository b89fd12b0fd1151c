"""Serializers: full ones, plain callables, and what they may return."""

from __future__ import annotations

from datetime import datetime

import pytest

from aiokprod.errors import ConfigError, SerializationError
from aiokprod.serializers import HeaderList, JsonSerializer, StringSerializer, checked, three_arguments


def test_none_stays_a_tombstone() -> None:
    assert StringSerializer()("orders", [], None) is None
    assert JsonSerializer()("orders", [], None) is None


def test_json_is_compact_utf_8() -> None:
    assert JsonSerializer()("orders", [], {"name": "Zoë", "n": 1}) == '{"name":"Zoë","n":1}'.encode()


def test_a_callable_of_one_argument_gets_the_data() -> None:
    serializer = three_arguments(lambda data: data.encode(), "value_serializer")
    assert serializer is not None
    assert serializer("orders", [], "x") == b"x"


def test_a_builtin_callable_gets_the_data() -> None:
    serializer = three_arguments(str.encode, "value_serializer")
    assert serializer is not None
    assert serializer("orders", [], "x") == b"x"


def test_a_full_serializer_may_add_headers() -> None:
    def tagged(topic: str, headers: HeaderList, data: bytes) -> bytes:
        headers.append(("schema", topic.encode()))
        return data

    serializer = three_arguments(tagged, "value_serializer")
    assert serializer is not None
    headers: HeaderList = []
    assert serializer("orders", headers, b"x") == b"x"
    assert headers == [("schema", b"orders")]


def test_no_serializer_is_none_and_no_callable_is_an_error_that_names_the_option() -> None:
    assert three_arguments(None, "key_serializer") is None
    with pytest.raises(ConfigError, match="key_serializer"):
        three_arguments(5, "key_serializer")


def test_a_result_is_copied_to_bytes_or_refused() -> None:
    mutable = bytearray(b"x")
    result = checked(mutable, "value", "orders")
    mutable[0] = 0
    assert result == b"x"
    with pytest.raises(SerializationError, match="value_serializer returned str"):
        checked("x", "value", "orders")


def test_a_released_view_is_no_result() -> None:
    view = memoryview(b"gone")
    view.release()
    with pytest.raises(SerializationError, match=r"value_serializer returned .*released"):
        checked(view, "value", "orders")


def test_json_says_what_it_cannot_write_and_how_to_have_it_written() -> None:
    with pytest.raises(
        SerializationError, match=r"type datetime is not JSON serializable; JsonSerializer\(default"
    ) as told:
        JsonSerializer()("orders", [], {"at": datetime(2026, 1, 2)})
    assert isinstance(told.value.__cause__, TypeError)
    assert told.value.topic == "orders"
    written = JsonSerializer(default=str)("orders", [], {"at": datetime(2026, 1, 2)})
    assert written == b'{"at":"2026-01-02 00:00:00"}'
    around: list[object] = []
    around.append(around)
    with pytest.raises(SerializationError, match="Circular reference detected"):
        JsonSerializer()("orders", [], around)


def test_what_a_default_of_the_user_raises_stays_as_it_is() -> None:
    """The error's text may hold what is in the record."""

    def refuse(data: object) -> object:
        raise TypeError(f"cannot write {data!r}")

    with pytest.raises(TypeError, match="cannot write"):
        JsonSerializer(default=refuse)("orders", [], {"at": object()})
