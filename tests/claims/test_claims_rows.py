"""Rows of claims as a table."""

from __future__ import annotations

import subprocess
import sys
import zlib
from typing import Any

import pytest

from aiokprod.claims.rows import Rows, Status, hash_of_key, status_of
from aiokprod.errors import AiokprodError
from aiokprod.model import Persistence


def test_a_table_has_every_column_as_it_was_added() -> None:
    rows = Rows()
    rows.add(0, -1, "orders", 3, 77, Status.ACKED, 1_000_001, 1_000_900)
    rows.add(1, 2**32 - 1, "other", -1, -1, Status.NOT_PERSISTED, 1_000_002, 1_000_901)
    table = rows.table(-5, 9)
    assert table.to_pylist()[0] == {
        "run": -5, "stream": 9, "seq": 0, "key_hash": -1, "topic": "orders", "partition": 3, "offset": 77,
        "status": 0, "send_us": 1_000_001, "ack_us": 1_000_900,
    }  # fmt: skip
    assert table.column("key_hash").to_pylist() == [-1, 2**32 - 1]
    assert table.column("status").to_pylist() == [0, 1]
    assert len(rows) == table.num_rows == 2


def test_a_table_has_no_nulls_and_every_topic_whatever_its_length() -> None:
    rows = Rows()
    topics = ["", "orders", "o" * 249, "", "t"]
    for topic in topics:
        rows.add(0, -1, topic, 0, 0, Status.ACKED, 1, 2)
    table = rows.table(2**63 - 1, -(2**63))
    table.validate(full=True)
    assert table.column("topic").to_pylist() == topics
    assert table.column("run").to_pylist() == [2**63 - 1] * 5
    assert Rows().table(1, 2).num_rows == 0


def test_the_first_table_does_not_import_pandas() -> None:
    """The import takes half a second, which is all the time that `close` has for the last claims."""
    program = (
        "import sys; import pyarrow.parquet; from aiokprod.claims.rows import Rows; rows = Rows();"
        " rows.add(0, 1, 'orders', 0, 0, 0, 1, 2); assert rows.table(1, 2).num_rows == 1; assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("column", [0, 1, 3, 4, 5, 6, 7])  # all but the topic, which is a text
def test_a_claim_with_a_number_that_does_not_fit_is_in_no_column(column: int) -> None:
    good = (0, -1, "t", 3, 77, Status.ACKED, 1, 2)
    rows = Rows()
    rows.add(*good)
    bad: list[Any] = list(good)
    bad[column] = 2**64
    with pytest.raises(OverflowError):
        rows.add(*bad)
    rows.add(*good)
    assert rows.table(1, 1).num_rows == len(rows) == 2


def test_the_numbers_of_a_status_are_those_in_the_files() -> None:
    assert [status.value for status in Status] == [0, 1, 2, 3, 4]


def test_an_error_says_what_is_claimed() -> None:
    ambiguous = AiokprodError("x", persistence=Persistence.POSSIBLY_PERSISTED)
    assert status_of(ambiguous, idempotent=True) is Status.POSSIBLY_PERSISTED
    assert status_of(ambiguous, idempotent=False) is Status.POSSIBLY_REPEATED
    clean = AiokprodError("x", persistence=Persistence.NOT_PERSISTED)
    assert status_of(clean, idempotent=False) is Status.NOT_PERSISTED


def test_a_key_is_hashed_and_no_key_is_not_an_empty_one() -> None:
    assert hash_of_key(b"abc") == zlib.crc32(b"abc")
    assert hash_of_key(b"") == 0
    assert hash_of_key(None) == -1
    assert hash_of_key(bytearray(b"abc")) == -2
