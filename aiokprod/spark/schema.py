"""The columns of a DataFrame that the sink writes, and checks of their types. Pure.

The columns are those of Spark's own Kafka sink, and `timestamp`. They are found by name, in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Protocol

from aiokprod.spark.errors import SinkUsageError


class DataType(Protocol):
    """The part of a Spark type that is used here."""

    def simpleString(self) -> str: ...  # noqa: N802 - pyspark's name


class Field(Protocol):
    """The part of a Spark column that is used here."""

    @property
    def name(self) -> str: ...

    @property
    def dataType(self) -> DataType: ...  # noqa: N802 - pyspark's name


_TEXT: Final = "string or binary"
_WANTED: Final = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
    "headers": "array<struct<key:string,value:binary>>",
}
_ADVICE: Final = {
    "value": "cast it, or make one with to_json(struct(*))",
    "timestamp": "cast it; Kafka keeps milliseconds",
    "headers": "build it with array(struct(lit('name').alias('key'), column.alias('value')))",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnPlan:
    """The position of each column in a record batch; None if there is no such column."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None

    @classmethod
    def of(cls, fields: Sequence[Field], topic: str | None) -> ColumnPlan:
        """Check the columns and find their positions.

        Args:
            fields: the columns of the DataFrame's schema.
            topic: the option, which takes precedence over the column.

        Raises:
            SinkUsageError: a column is missing, unknown, duplicated, or has a type that cannot be written.
        """
        places: dict[str, int] = {}
        for place, field in enumerate(fields):
            name = field.name.lower()
            if name not in _WANTED:
                raise _unknown(field.name)
            if name in places:
                raise SinkUsageError(f"column {name!r} is there twice: select it once")
            _check_type(name, field.dataType.simpleString())
            places[name] = place
        if "value" not in places:
            raise SinkUsageError(f"column 'value' is missing: it holds the bytes of the record ({_TEXT})")
        if topic is None and "topic" not in places:
            raise SinkUsageError("no topic: set .option('topic', ...) or have a column 'topic'")
        if topic is not None:
            places.pop("topic", None)
        return cls(**places)


def _unknown(name: str) -> SinkUsageError:
    near = get_close_matches(name.lower(), list(_WANTED), 1, 0.6)
    advice = f"did you mean {near[0]!r}?" if near else "drop it, or put it into 'value' (to_json(struct(*)))"
    return SinkUsageError(f"unknown column {name!r}: {advice} The columns are {', '.join(_WANTED)}.")


def _check_type(name: str, found: str) -> None:
    if name == "headers":
        # simpleString does not show nullability, and Spark's names may differ in case.
        right = found.lower() == _WANTED[name]
    elif _WANTED[name] == _TEXT:
        right = found == "binary" or _is_text(found)
    elif name == "topic":
        right = _is_text(found)
    else:
        right = found == _WANTED[name]
    if not right:
        advice = _ADVICE.get(name, "cast it")
        raise SinkUsageError(f"column {name!r} is {found}, but must be {_WANTED[name]}: {advice}")


def _is_text(found: str) -> bool:
    return found == "string" or found.startswith(("string collate", "varchar(", "char("))
