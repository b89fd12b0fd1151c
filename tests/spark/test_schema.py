"""Columns of a DataFrame: which may be there, of which types."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from aiokprod.spark.errors import SinkUsageError
from aiokprod.spark.schema import ColumnPlan

HEADERS = "headers array<struct<key:string,value:binary>>"


@dataclass(frozen=True)
class Type:
    text: str

    def simpleString(self) -> str:
        return self.text


@dataclass(frozen=True)
class Column:
    """A field of Spark's schema, which cannot be read from a text without a JVM."""

    name: str
    dataType: Type


def plan(ddl: str, topic: str | None = "t") -> ColumnPlan:
    columns = (column.split(" ", 1) for column in ddl.split(", "))
    return ColumnPlan.of([Column(name, Type(kind)) for name, kind in columns], topic)


def refusal(ddl: str, topic: str | None = "t") -> str:
    with pytest.raises(SinkUsageError) as caught:
        plan(ddl, topic)
    return str(caught.value)


def test_columns_are_found_by_name_wherever_they_stand() -> None:
    ddl = f"partition int, {HEADERS}, Value string, key binary, topic string, timestamp timestamp"
    assert plan(ddl, None) == ColumnPlan(partition=0, headers=1, value=2, key=3, topic=4, timestamp=5)
    assert plan("value binary") == ColumnPlan(value=0)


def test_the_topic_of_the_option_wins() -> None:
    assert plan("value string, topic string", "t").topic is None
    assert plan("value string, topic string", None).topic == 1


def test_what_is_missing_is_said() -> None:
    assert "'value' is missing" in refusal("key string")
    assert "no topic: set .option('topic', ...)" in refusal("value string", None)


def test_an_unknown_column_names_the_nearest() -> None:
    assert "unknown column 'header': did you mean 'headers'?" in refusal("value string, header string")
    assert "to_json" in refusal("value string, amount int")


def test_a_column_may_be_there_once() -> None:
    assert "'value' is there twice" in refusal("value string, VALUE string")


@pytest.mark.parametrize(
    ("ddl", "words"),
    [
        ("value int", "column 'value' is int, but must be string or binary: cast it"),
        ("value struct<a:int>", "to_json(struct(*))"),
        ("value string, key bigint", "column 'key' is bigint"),
        ("value string, topic int", "column 'topic' is int"),
        ("value string, partition bigint", "column 'partition' is bigint, but must be int: cast it"),
        ("value string, timestamp bigint", "column 'timestamp' is bigint"),
        ("value string, timestamp timestamp_ntz", "column 'timestamp' is timestamp_ntz"),
        ("value string, headers map<string,binary>", "column 'headers' is map<string,binary>"),
        ("value string, headers array<struct<key:string,value:string>>", "build it with array(struct("),
    ],
)
def test_a_wrong_type_says_which_is_right(ddl: str, words: str) -> None:
    assert words in refusal(ddl)


def test_texts_of_every_kind_can_be_written() -> None:
    assert plan("value varchar(10), key char(3)") == ColumnPlan(value=0, key=1)
