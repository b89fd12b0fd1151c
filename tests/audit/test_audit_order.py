"""The order pass: lines of keys, not of their hashes; numbers of any size."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest
from audit_frames import frames
from audit_reference import ClaimRow, LogRow

from aiokprod import audit
from aiokprod.claims import Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aiokprod.audit import Verdict

pytestmark = pytest.mark.slow


def judged(spark: SparkSession, *records: tuple[bytes, int]) -> Verdict:
    """Audit records of one stream in one partition, given by key and seq, in this order."""
    log = [LogRow(1, 0, seq, "t", key, 0, offset) for offset, (key, seq) in enumerate(records)]
    claims = [
        ClaimRow(1, 0, record.seq, "t", record.key, 0, record.offset, Status.ACKED_AT_LEAST_ONCE) for record in log
    ]
    return audit.run(spark, *frames(spark, claims, log))


def test_two_keys_with_one_crc_are_two_lines(spark: SparkSession) -> None:
    one, other = b"plumless", b"buckeroo"
    assert zlib.crc32(one) == zlib.crc32(other)
    verdict = judged(spark, (one, 5), (other, 1), (one, 6), (other, 2))
    assert (verdict.exit_status, verdict.late) == (0, 0)
    assert judged(spark, (one, 5), (other, 1), (one, 4)).late == 1


def test_a_depth_that_cannot_be_said_is_the_greatest_that_can(spark: SparkSession) -> None:
    verdict = judged(spark, (b"k", 2**63 - 1), (b"k", -(2**63)), (b"k", 2**62))
    assert (verdict.exit_status, verdict.late, verdict.deepest) == (1, 2, 2**63 - 1)
    assert [(late.seq, late.depth) for late in verdict.named_late] == [(-(2**63), 2**63 - 1), (2**62, 2**62 - 1)]
