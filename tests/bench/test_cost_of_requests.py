"""bench/transaction_for_each_request.py: each kind makes its requests, and the page gets the ratios to the plain ones."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import transaction_for_each_request as bench
from transaction_for_each_request import BEGIN, END, KINDS, PAGE, PLAIN, TOPICS, Figures, Turn

from aiokprod.testing import MockCluster


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_makes_its_requests(kind: str) -> None:
    async def scenario() -> None:
        async with MockCluster(1) as cluster:
            for topic in TOPICS:
                cluster.create_topic(topic)
            async with bench.requests_of(cluster.bootstrap_servers, kind) as request:
                await asyncio.gather(*(request(number) for number in range(20)))
            for topic in TOPICS:
                assert len(cluster.records(topic, committed=True)) == 20
            assert cluster.requests_seen("EndTxn") >= (20 if KINDS[kind] else 0)

    asyncio.run(scenario())


def test_a_turn_has_figures() -> None:
    async def scenario() -> Figures:
        async with MockCluster(1) as cluster:
            for topic in TOPICS:
                cluster.create_topic(topic)
            return await bench.take(cluster.bootstrap_servers, Turn("pure", 4, "pool of 4"), 0.1)

    assert min(asyncio.run(scenario())) > 0


def test_pools_that_are_larger_than_the_number_of_clients_are_left_out() -> None:
    assert [turn.kind for turn in bench.turns(["pure"], [1])] == [PLAIN, "pool of 1"]
    assert len(bench.turns(["compiled", "pure"], [1, 64])) == 2 * (2 + 4)


def test_ratios_are_computed_round_by_round_within_a_form() -> None:
    found = {
        Turn("compiled", 1, PLAIN): [Figures(100.0, 10.0, 1.0, 2.0), Figures(200.0, 10.0, 1.0, 2.0)],
        Turn("compiled", 1, "pool of 1"): [Figures(50.0, 40.0, 3.0, 9.0), Figures(100.0, 40.0, 3.0, 9.0)],
        Turn("pure", 1, PLAIN): [Figures(10.0, 1.0, 1.0, 2.0)] * 2,
        Turn("pure", 1, "pool of 1"): [Figures(1.0, 1.0, 1.0, 2.0)] * 2,
    }
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in bench.table(found).splitlines()[2:]]
    assert rows[1] == [
        "1", "compiled", "pool of 1", "75 (50 to 100)", "0.500 (0.500 to 0.500)", "40 (40 to 40)", "4.0 (4.0 to 4.0)",
        "3.00 (3.00 to 3.00)", "3.0 (3.0 to 3.0)", "9.0 (9.0 to 9.0)",
    ]  # fmt: skip
    assert rows[3][4] == "0.100 (0.100 to 0.100)"


def test_the_figures_go_between_the_marks_of_the_page(tmp_path: Path) -> None:
    text = PAGE.read_text()
    assert text.count(BEGIN) == text.count(END) == 1
    page = tmp_path / "page.md"
    page.write_text(text)
    for figures in ("figures of one run", "| figures | of another |"):
        bench.write(page, figures)
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    assert page.read_text() == f"{before}{BEGIN}\n| figures | of another |\n{END}{after}"
