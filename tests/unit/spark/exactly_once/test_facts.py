"""Facts as committed offsets: texts that come back, names that no other sink has."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokprod.errors import ProtocolError
from aiokprod.spark.exactly_once.facts import (
    Fact,
    Names,
    by_group,
    decision_texts,
    done_text,
    marker_text,
    name_of_query,
    read_decision,
    read_done,
    read_head,
    read_marker,
)
from aiokprod.spark.exactly_once.protocol import EARLIER_QUERIES, Attempt, BatchName, Decision, Marker

BATCHES = st.builds(BatchName, st.text().map(name_of_query), st.integers(0, 2**62))
ATTEMPTS = st.lists(
    st.builds(
        Attempt,
        st.just(7),
        st.integers(0, 10**6),
        st.integers(0, 10**4),
        st.integers(0, 2**63 - 1),
        st.integers(0, 2**15 - 1),
    ),
    max_size=400,
)


@given(BATCHES, st.integers(0, 2**62), st.integers(0, 2**64 - 1))
def test_a_marker_comes_back(batch: BatchName, rows: int, fingerprint: int) -> None:
    marker = Marker(batch, rows, fingerprint)
    assert read_marker(marker_text(marker)) == marker
    assert read_done(done_text(batch)) == batch


EARLIER = st.lists(st.text().map(name_of_query), max_size=EARLIER_QUERIES)
STREAMS = st.none() | st.text().map(name_of_query)


ROWS = st.none() | st.integers(0, 2**62)


MARKED = st.lists(st.integers(0, 10**6), max_size=400).map(tuple)


@given(BATCHES, st.sampled_from([1, 2]), ATTEMPTS, st.integers(1, 10**6), EARLIER, STREAMS, ROWS, MARKED, ROWS)
def test_a_decision_comes_back_from_its_parts(
    batch: BatchName,
    version: int,
    attempts: list[Attempt],
    slots: int,
    earlier: list[str],
    stream: str | None,
    rows: int | None,
    marked: tuple[int, ...],
    decided_s: int | None,
) -> None:
    known = (tuple(earlier), stream, rows, marked, decided_s)
    decision = Decision(batch, version, len(attempts), tuple(attempts), *known)
    chunks = decision_texts(Names("s", "t", slots), decision)
    assert read_decision(chunk.fact for chunk in chunks) == decision
    assert read_head(chunks[0].fact) == (len(chunks), slots)
    assert len({chunk.place for chunk in chunks}) == len(chunks)
    assert all(partition < slots for (_, partition), _ in chunks)
    assert max(len(chunk.fact.text) for chunk in chunks) <= 4096  # offset.metadata.max.bytes
    assert {chunk.fact.offset for chunk in chunks} == {batch.number}


@pytest.mark.parametrize("text", ["", "x1 q", "m1 q 1", "m1 q one 2", "m1 q 1 -2", "m1 q 1 2 3", "f1 q"])
def test_what_is_no_marker_is_told(text: str) -> None:
    with pytest.raises(ProtocolError):
        read_marker(Fact(0, text))


@pytest.mark.parametrize(("text", "rows"), [("d1 q 2 1 1 7 1 - - 0.0.1.0", None), ("d3 q 2 1 1 7 1 - - 5 0.0.1.0", 5)])
def test_a_decision_of_an_older_release_is_read(text: str, rows: int | None) -> None:
    decision = read_decision([Fact(4, text)])
    assert decision == Decision(BatchName("q", 4), 2, 1, (Attempt(7, 0, 0, 1, 0),), rows=rows)
    assert read_head(Fact(4, text)) == (1, 1)


@pytest.mark.parametrize(
    "texts",
    [
        ["d1 q 2 1 1 0 1 - - 0.0.1"],
        ["d3 q 2 1 1 0 1 - -"],
        ["d3 q 2 1 1 0 1 - - x"],
        ["d4 q 2 1 1 0 1 - - 5"],
        ["d4 q 2 1 1 0 1 - - 5 x"],
        ["d1 q 2 1 1 0 1 -"],
        ["d1 q 2 1 1 0 1 - -", "f1 q"],
    ],
)
def test_what_is_no_decision_is_told(texts: list[str]) -> None:
    with pytest.raises(ProtocolError):
        read_decision(Fact(0, text) for text in texts)


def test_parts_of_two_decisions_are_none() -> None:
    with pytest.raises(ProtocolError, match="a part of the decision of batch 4 is of batch 3"):
        read_decision([Fact(4, "d1 q 2 2 1 0 2 - -"), Fact(3, "d2 0.0.1.0")])


def test_names_begin_with_the_sink_and_are_of_no_other() -> None:
    names = Names("a", "t", 3)
    assert (names.control, names.task(6, 14, 2)) == ("a.ctl", "a.6.14.2")
    assert names.task_of("a.6.14.2") == (6, 14, 2)
    for other in ("a.ctl", "a.6.14", "a.6.14.2.1", "b.6.14.2", "xa.6.14.2", "a.6.x.2", "a-b.6.14.2", "a.6.14.2\n"):
        assert names.task_of(other) is None
    assert [names.marker(number) for number in (0, 2, 3)] == [("a.m0", 0), ("a.m0", 2), ("a.m1", 0)]
    assert [names.decision(number) for number in (0, 2, 3)] == [("a.0", 0), ("a.0", 2), ("a.1", 0)]
    assert names.done == ("a.done", 0)


def test_offsets_are_asked_for_group_by_group() -> None:
    one, two, three = Fact(1, ""), Fact(2, ""), Fact(3, "")
    assert by_group({("a", 0): one, ("b", 0): two, ("a", 1): three}) == {"a": {0: one, 1: three}, "b": {0: two}}
