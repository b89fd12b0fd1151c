"""Batches against the Java client's: ours are its bytes, we read its, and it reads ours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from golden_cases import CASES, CODECS, GOLDEN, Case, read_cases

from aiokprod.records.decoder import decode_batches, split_records
from aiokprod.testing.kafka_cluster.jars import find_java, kafka_classpath

GOLDEN_CASES = read_cases()


def each_case(case: Case) -> str:
    return case.name


def test_every_golden_file_belongs_to_a_case() -> None:
    wanted = {f"{case.name}.{codec}" for case in GOLDEN_CASES for codec in CODECS}
    assert wanted == {path.name for path in GOLDEN.iterdir()} - {"cases.txt", "Golden.java"}
    assert sum(path.stat().st_size for path in GOLDEN.iterdir()) < 50_000


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=each_case)
def test_our_batch_is_byte_equal_to_that_of_the_java_client(case: Case) -> None:
    assert case.batch("none") == case.golden("none")


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("case", GOLDEN_CASES, ids=each_case)
def test_we_read_what_the_java_client_wrote(case: Case, codec: str) -> None:
    data = case.golden(codec)
    (batch,) = decode_batches(data)
    assert (batch.codec, batch.size_bytes, batch.count) == (codec, len(data), len(case.values))
    assert (batch.base_offset, batch.last_offset_delta) == (0, len(case.values) - 1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (
        case.producer_id,
        case.epoch,
        case.sequence,
    )
    assert batch.is_transactional == case.transactional
    assert batch.is_log_append_time == (case.log_append_time_ms >= 0)
    assert not batch.is_control
    assert (batch.base_timestamp_ms, batch.max_timestamp_ms) == (case.timestamps[0], max(case.timestamps))
    records = batch.records()
    assert [record.offset for record in records] == list(range(len(records)))
    assert [record.timestamp_ms for record in records] == case.timestamps
    assert [record.key for record in records] == case.keys
    assert [record.value for record in records] == case.values
    assert [list(record.headers) for record in records] == case.headers
    assert batch.section() == case.section()  # what was packed is byte-equal too


@pytest.mark.parametrize("case", GOLDEN_CASES, ids=each_case)
def test_a_section_of_the_java_client_splits_into_our_columns(case: Case) -> None:
    (batch,) = decode_batches(case.golden("zstd"))
    values, keys, headers, deltas = split_records(batch.section(), batch.count)
    assert values == case.values
    assert keys == (case.keys if any(key is not None for key in case.keys) else None)
    assert headers == ([tuple(pairs) or None for pairs in case.headers] if any(case.headers) else None)
    assert deltas == [timestamp - case.timestamps[0] for timestamp in case.timestamps]


@pytest.mark.real
def test_the_java_client_reads_ours_and_still_writes_the_golden_bytes(tmp_path: Path) -> None:
    """With more cases than are committed: offset deltas of three bytes, sections of many blocks."""
    cases = tmp_path / "cases.txt"
    many = "batch many 5 0 0 0 -1\n" + "".join(f"record {1_700_000_000_000 + at} - {at:06x}\n" for at in range(20_000))
    bulky = "batch bulky 5 0 0 0 -1\n" + "".join(f"record 1700000000000 6b {at:02x}*9000\n" for at in range(40))
    cases.write_text(CASES.read_text() + many + bulky)
    (ours := tmp_path / "ours").mkdir()
    (theirs := tmp_path / "theirs").mkdir()
    for case in (extended := read_cases(cases)):
        for codec in CODECS:
            (ours / f"{case.name}.{codec}").write_bytes(case.batch(codec))
    command = [find_java(), "-cp", kafka_classpath("4.3.1"), str(GOLDEN / "Golden.java")]
    for action, folder in (("check", ours), ("make", theirs)):
        done = subprocess.run([*command, action, str(cases), str(folder)], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, f"{action} {len(extended) * len(CODECS)}\n"), done.stderr
    for case in extended:
        assert case.batch("none") == (theirs / f"{case.name}.none").read_bytes()
        for codec in CODECS:
            (batch,) = decode_batches((theirs / f"{case.name}.{codec}").read_bytes())
            assert batch.section() == case.section()
    for path in GOLDEN.glob("*.none"):
        assert (theirs / path.name).read_bytes() == path.read_bytes()
