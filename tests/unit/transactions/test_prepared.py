"""The value of a prepared transaction: its checks, its JSON, its pickle."""

from __future__ import annotations

import copy
import json
import pickle
from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from aiokprod import PreparedPartition, PreparedTransaction
from aiokprod.errors import UsageError

PREPARED = PreparedTransaction(
    "orders-7", 4711, 3, 2, (PreparedPartition("t", 0, 10, 19, 10), PreparedPartition("ü", 1, -1, -1, 2))
)
TEXT = (
    '{"format":1,"transactional_id":"orders-7","producer_id":4711,"epoch":3,"version":2,"is_begun":true,'
    '"partitions":[["t",0,10,19,10],["\\u00fc",1,-1,-1,2]]}'
)


def test_the_json_is_stable_and_comes_back() -> None:
    assert PREPARED.to_json() == TEXT
    assert PreparedTransaction.from_json(TEXT) == PREPARED
    assert PreparedTransaction.from_json(TEXT.encode()) == PREPARED
    assert PreparedTransaction.from_json(json.dumps(json.loads(TEXT) | {"later": 1})) == PREPARED
    assert PREPARED.count == 12


def test_it_can_be_pickled_and_not_changed() -> None:
    assert pickle.loads(pickle.dumps(PREPARED)) == PREPARED
    assert hash(PREPARED) == hash(PreparedTransaction.from_json(TEXT))
    with pytest.raises(FrozenInstanceError):
        PREPARED.epoch = 4  # type: ignore[misc]


@pytest.mark.parametrize("value", [PREPARED, PREPARED.partitions[0]], ids=["transaction", "partition"])
def test_what_is_unpickled_is_checked(value: object) -> None:
    damaged = copy.copy(value)
    object.__setattr__(damaged, "epoch" if value is PREPARED else "count", "many")
    with pytest.raises(UsageError, match="many"):
        pickle.loads(pickle.dumps(damaged))


def test_an_empty_one_needs_no_identity() -> None:
    empty = PreparedTransaction("i", -1, -1, 1, is_begun=False)
    assert PreparedTransaction.from_json(empty.to_json()) == empty
    with pytest.raises(UsageError, match="producer_id is -1"):
        PreparedTransaction("i", -1, 0, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("transactional_id", ""),
        ("transactional_id", None),
        ("transactional_id", "x" * 32_768),
        ("transactional_id", "\ud800"),
        ("producer_id", True),
        ("producer_id", 2**63),
        ("epoch", 32_768),
        ("epoch", 1.0),
        ("version", 3),
        ("is_begun", 1),
        ("partitions", None),
        ("partitions", [["t", 0, 0, 0]]),
        ("partitions", [["t", 0, 5, 4, 1]]),
        ("partitions", [["t", 0, 0, 0, 0]]),
        ("partitions", [["t", -1, 0, 0, 1]]),
        ("partitions", [["", 0, 0, 0, 1]]),
        ("partitions", [7]),
        ("format", 2),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_what_no_transaction_has_is_refused(name: str, value: Any) -> None:
    with pytest.raises(UsageError):
        PreparedTransaction.from_json(json.dumps(json.loads(TEXT) | {name: value}))


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", "null", b"\xff", "[" * 100_000, 5, None, " " * (16 * 1024 * 1024 + 1)],
    ids=["empty", "cut", "list", "number", "null", "bytes", "deep", "int", "None", "long"],
)  # fmt: skip
def test_what_is_no_json_of_one_is_refused(text: Any) -> None:
    with pytest.raises(UsageError):
        PreparedTransaction.from_json(text)


def test_each_field_is_needed() -> None:
    for name in json.loads(TEXT):
        fields = json.loads(TEXT)
        del fields[name]
        with pytest.raises(UsageError):
            PreparedTransaction.from_json(json.dumps(fields))


def test_partitions_are_a_tuple_of_partitions() -> None:
    with pytest.raises(UsageError, match="tuple of PreparedPartition"):
        PreparedTransaction("i", 1, 1, 2, [PreparedPartition("t", 0, 0, 0, 1)])  # type: ignore[arg-type]
