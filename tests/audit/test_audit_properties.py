"""Any world at all: the audit on Spark says of it what the reference says. hypothesis draws; one audit judges many worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from audit_frames import frames
from audit_reference import ClaimRow, LogRow, judge
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aiokprod import audit
from aiokprod.audit import Finding
from aiokprod.claims import Status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

KEYS = st.sampled_from((None, b"", b"a", b"plumless", b"buckeroo"))  # the last two have one CRC-32
TOPICS = st.sampled_from(("t", "u"))
SMALL = st.integers(0, 2)
SEQS = st.integers(-1, 6) | st.sampled_from((-(2**63), 2**63 - 1))
CLAIMS = st.builds(
    ClaimRow, run=SMALL, stream=st.integers(0, 1), seq=SEQS, topic=TOPICS, key=KEYS, partition=st.integers(-1, 2),
    offset=st.integers(-1, 8), status=st.sampled_from(Status),
)  # fmt: skip
RECORDS = st.builds(
    LogRow, run=st.sampled_from((None, 0, 1, 2, 9)), stream=st.integers(0, 1), seq=SEQS, topic=TOPICS, key=KEYS,
    partition=SMALL, offset=st.integers(0, 10),
)  # fmt: skip


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    claims=st.lists(CLAIMS, min_size=1, max_size=60, unique_by=lambda c: (c.run, c.stream, c.seq, c.topic))
    | st.lists(CLAIMS, min_size=1, max_size=60),
    log=st.lists(RECORDS, max_size=90, unique_by=lambda r: (r.topic, r.partition, r.offset)),
)
def test_spark_and_the_reference_say_the_same_of_any_world(
    spark: SparkSession, claims: list[ClaimRow], log: list[LogRow]
) -> None:
    verdict = audit.run(spark, *frames(spark, claims, log))
    expected = judge(claims, log)
    # The told place of three copies and more is compared with the first and the last of them alone.
    unsure = {identity for identity, places in expected.places.items() if len(places) > 2}

    def compared(findings: dict[tuple[int, int, int, str], Finding]) -> dict[tuple[int, int, int, str], Finding]:
        plain = {i: said & ~Finding.MISPLACED if i in unsure else said for i, said in findings.items()}
        return {identity: said for identity, said in plain.items() if said}

    named = {(n.run, n.stream, n.seq, n.topic): n for n in verdict.named}
    assert compared({identity: each.findings for identity, each in named.items()}) == compared(expected.findings)
    for identity, each in named.items():
        assert set(each.places) == expected.places[identity]
        assert each.copies == len(expected.places[identity])
    late: dict[tuple[int, int, int, str], list[int]] = {}
    for each in verdict.named_late:
        late.setdefault((each.run, each.stream, each.seq, each.topic), []).append(each.depth)
    assert {i: sorted(depths) for i, depths in late.items()} == {i: sorted(d) for i, d in expected.late.items()}
    assert verdict.late == sum(len(depths) for depths in expected.late.values())
    assert verdict.log_records == len(log)
    runs = {claim.run for claim in claims}
    assert verdict.not_ours == sum(record.run not in runs for record in log)
