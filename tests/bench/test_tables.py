"""bench/tables.py, items.py, memory.py: what becomes of measurements."""

from __future__ import annotations

from dataclasses import asdict

from items import COMPILED, ITEMS, PURE
from job import Job, Measured
from memory import slope_of
from tables import Table, cpu_us, markdown, rate


def table(kind: str = "rates", title: str = "Firehose") -> Table:
    made = Table(title, kind, ["aiokprod, compiled", "aiokprod, pure", "peer"])
    for ours, pure, peer in ((1.0, 2.0, 4.0), (2.0, 4.0, 16.0)):
        for name, seconds in zip(made.names, (ours, pure, peer), strict=True):
            made.add(name, Measured(seconds=seconds, cpu_s=seconds / 2, records=1_000, broker_cpu_s=seconds))
    return made


def test_ratios_are_taken_round_by_round() -> None:
    assert table().ratios("aiokprod, compiled", "peer", rate) == [4.0, 8.0]
    assert table().ratios("aiokprod, pure", "peer", cpu_us) == [0.5, 0.25]


def test_a_table_survives_json() -> None:
    assert Table.from_json(asdict(table())) == table()


def test_rates_stand_beside_the_brokers_load_with_their_spread() -> None:
    line = markdown([table()]).splitlines()[-1]
    assert line.startswith("| peer | 156 (62 to 250) | 5000.00 (2000.00 to 8000.00) | 100 % | 6.00 (4.00 to 8.00) |")


def test_the_points_of_a_growth_are_lines_of_one_table_measured_by_the_point_ten() -> None:
    text = markdown([table("growth", f"Growth, topics: {point}") for point in ("1", "10", "1,000")])
    assert text.count("###") == 1
    assert [line.split("|")[1].strip() for line in text.splitlines()[4:]] == ["1", "10", "1,000"]
    assert "to 10 |" in text


def test_every_table_begins_with_our_two_forms_and_its_jobs_can_be_made() -> None:
    for tables in ITEMS.values():
        for item in tables():
            assert [entry.form for entry in item.entries[:2]] == [COMPILED, PURE], item.title
            assert len({entry.name for entry in item.entries}) == len(item.entries), item.title
            for entry in item.entries:
                job = Job(entry.client, entry.way, "", "topic", entry.count, **(dict(item.common) | dict(entry.own)))
                assert Job.from_json(job.to_json()) == job


def test_the_titles_of_all_tables_differ() -> None:
    titles = [item.title for tables in ITEMS.values() for item in tables()]
    assert len(set(titles)) == len(titles)


def test_the_slope_is_that_of_the_straight_line() -> None:
    assert slope_of([(0.0, 5.0), (1.0, 7.0), (2.0, 9.0)]) == 2.0
