"""bench/tables.py, items.py, memory.py: what becomes of measurements."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from items import (
    AIOKAFKA,
    AIOKPROD,
    ASYNCIO,
    BARE,
    CALLBACK,
    COMPILED,
    FORMS,
    ITEMS,
    JAVA,
    KAFKA_PYTHON,
    OUTCOMES,
    PURE,
)
from job import Job, Measured
from memory import slope_of
from peers.transacting import transactions
from readme_table import BEGIN, COLUMNS, END, HOW, table_of, write_table
from tables import SAME_WAY, Table, beside, bounds, cpu_us, markdown, rate


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


def test_the_points_of_a_growth_are_columns_of_one_table_measured_by_the_point_ten() -> None:
    points = {label: table("growth", f"Growth, topics: {label}") for label in ("1", "10", "1,000")}
    for run in points["1,000"].runs["peer"]:
        run.cpu_s *= 3
    lines = markdown(list(points.values())).splitlines()
    assert lines[0] == "### Growth, topics"
    assert lines[2] == "| topics: CPU per record, µs (times that at 10) | 1 | 10 | 1,000 |"
    assert lines[4] == "| aiokprod, compiled | 750.00 (1.00) | 750.00 (1.00) | 750.00 (1.00) |"
    assert lines[6] == "| peer | 5000.00 (1.00) | 5000.00 (1.00) | 15000.00 (3.00) |"
    assert lines[7].startswith("| aiokprod, compiled: records/s | 750 (500 to 1,000) |")
    assert len(lines) == 8


def test_a_growth_without_a_point_ten_is_measured_by_its_first() -> None:
    text = markdown([table("growth", f"Growth, brokers: {point}") for point in ("1", "2")])
    assert "(times that at 1) | 1 | 2 |" in text


def test_what_is_left_of_the_rate_is_bounded_by_what_each_transaction_waits_for() -> None:
    starts = ("Transactions of 10,000 records: ", "Transactions of 1 record: ")
    many, one = (next(item for item in ITEMS["transactions"]() if item.title.startswith(start)) for start in starts)
    tables = [Table(item.title, item.kind, [entry.name for entry in item.entries]) for item in (many, one)]
    for number, made in enumerate(tables):
        for name in made.names:
            ours = name.startswith("aiokprod")
            for seconds in (8.0, 16.0):
                records = 10_000_000  # a transaction of 10,000 takes 8 or 16 ms
                seconds *= 0.5 if name.endswith("no transactions") else 1.0
                made.add(name, Measured(seconds, 1.0, records, p50_ms=2.0 if number and ours else None))
    lines = bounds(tables).splitlines()
    assert (
        lines[4] == "| 2 | compiled | 10,000 | 6.00 (4.00 to 8.00) | 2.00 | 0.73 (0.67 to 0.80) | 0.50 (0.50 to 0.50) |"
    )
    assert lines[5].startswith("| 2 | pure | 10,000 | ")
    assert len(lines) == 6
    assert bounds(tables[:1]) == bounds([]) == "", "without the waits, or without tables, nothing is told"


def test_every_table_begins_with_our_two_forms_and_its_jobs_can_be_made() -> None:
    for tables in ITEMS.values():
        for item in tables():
            assert [entry.form for entry in item.entries[:2]] == [COMPILED, PURE], item.title
            assert len({entry.name for entry in item.entries}) == len(item.entries), item.title
            for entry in item.entries:
                job = Job(entry.client, entry.way, "", "topic", entry.count, **(dict(item.common) | dict(entry.own)))
                assert Job.from_json(job.to_json()) == job


def test_every_peer_that_can_is_in_every_table() -> None:
    for name, tables in ITEMS.items():
        for item in tables():
            can = {AIOKPROD, CALLBACK, ASYNCIO, AIOKAFKA, KAFKA_PYTHON, JAVA}
            if item.common.get("headers"):
                can -= {ASYNCIO, JAVA}
            if item.common.get("keys") or "topics" in item.common or item.kind == "waits" or name == "columns":
                can -= {JAVA}
            if name == "outcomes":
                can = can - {AIOKPROD} | {OUTCOMES}
            if name == "transactions":  # of librdkafka the plain client; Java's tool ends transactions by time alone
                can -= {ASYNCIO, KAFKA_PYTHON} if "transaction_ms" in item.common else {ASYNCIO, KAFKA_PYTHON, JAVA}
            assert {entry.client for entry in item.entries} - {BARE} == can, item.title


def test_what_asyncio_alone_takes_stands_beside_them() -> None:
    beside_it = [item.title for tables in ITEMS.values() for item in tables() if item.entries[-1].client == BARE]
    assert [title.partition(":")[0] for title in beside_it] == ["Outcomes", "Transactions of 1 record"]
    assert beside_it[1].endswith("transaction.version 2"), "its requests are those of version 2"


def test_the_rows_of_a_job_go_round_its_keys() -> None:
    job = Job("", "", "", "topic", 3, keys=2)
    first, second = ((job.value(), key, None) for key in job.key_list())
    assert list(job.rows()) == [first, second, first]
    ((_, key, headers),) = Job("", "", "", "topic", 1, headers=1).rows()
    assert key is None
    assert headers == [("header-0", b"0123456789abcdef")]


def test_the_titles_of_all_tables_differ() -> None:
    titles = [item.title for tables in ITEMS.values() for item in tables()]
    assert len(set(titles)) == len(titles)


def test_the_slope_is_that_of_the_straight_line() -> None:
    assert slope_of([(0.0, 5.0), (1.0, 7.0), (2.0, 9.0)]) == 2.0


def test_the_readme_gets_medians_and_ratios_between_its_marks_and_nothing_else_changes(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    made = outcomes()
    for _ in range(2):
        write_table([made], readme)
    text = readme.read_text()
    assert text == f"before\n{BEGIN}\n{HOW}\n{table_of([made])}\n{END}\nafter\n"
    assert "| aiokprod, compiled | 750.00 |  |  |  |  |" in text
    assert "| confluent-kafka | 5000.00 (6.7x) |  |  |  |  |" in text


def outcomes() -> Table:
    names = ["aiokprod, compiled, not read", "aiokprod, pure, not read", "confluent-kafka, no callback"]
    made = table("outcomes", "Outcomes: of a test")
    return Table(made.title, made.kind, names, dict(zip(names, made.runs.values(), strict=True)))


def test_every_column_of_the_readme_is_of_one_table() -> None:
    titles = [item.title for tables in ITEMS.values() for item in tables()]
    assert [sum(title.startswith(each.table) for title in titles) for each in COLUMNS] == [1] * len(COLUMNS)


def test_every_column_of_the_readme_has_a_figure_of_both_our_forms_and_of_peers() -> None:
    items = [item for tables in ITEMS.values() for item in tables()]
    for column in COLUMNS:
        (item,) = [item for item in items if item.title.startswith(column.table)]
        of_it = [entry.name for entry in item.entries if any(entry.name.endswith(f", {way}") for way in column.ways)]
        assert sum(name.startswith("aiokprod, compiled") for name in of_it) == 1
        assert sum(name.startswith("aiokprod, pure") for name in of_it) == 1
        assert sum(name.startswith("confluent-kafka") for name in of_it) >= 1


def test_each_way_of_reading_stands_beside_a_peers_that_is_measured() -> None:
    (item,) = ITEMS["outcomes"]()
    names = {entry.name for entry in item.entries}
    for way, peers in SAME_WAY.items():
        assert {f"aiokprod, {form}, {way}" for form in FORMS} <= names
        assert set(peers) <= names


def test_a_way_of_reading_has_the_ratios_of_each_round() -> None:
    names = [f"aiokprod, {form}, a done callback each" for form in FORMS] + list(SAME_WAY["a done callback each"])
    made = table("outcomes", "Outcomes: of a test")
    ways = {"a done callback each": SAME_WAY["a done callback each"]}
    line = beside(
        Table(made.title, made.kind, names, dict(zip(names, made.runs.values(), strict=True))), ways
    ).splitlines()[-1]
    assert line == (
        "| a done callback each | confluent-kafka, callback that reads the offset | 5000.00 (2000.00 to 8000.00) "
        "| 750.00 (6.00 (4.00 to 8.00)) | 1500.00 (3.00 (2.00 to 4.00)) | 6.00 (4.00 to 8.00) | 3.00 (2.00 to 4.00) |"
    )


def test_the_readme_has_the_marks() -> None:
    text = (Path(__file__).parents[2] / "README.md").read_text()
    assert text.index(BEGIN) < text.index(END)


def test_transactions_have_the_time_of_their_commits_beside_that_of_ours() -> None:
    made = table("commits", "Transactions")
    for name, p50_ms in zip(made.names, (2.0, 3.0, 4.0), strict=True):
        for run in made.runs[name]:
            run.p50_ms, run.p99_ms = p50_ms, 2 * p50_ms
    for run in made.runs["peer"]:
        run.p50_ms = run.p99_ms = None  # Java's tool tells none
    lines = markdown([made]).splitlines()
    assert "commit p50, ms | commit p99, ms" in lines[2]
    assert lines[4].startswith("| aiokprod, compiled |") and "| 2.00 (2.00 to 2.00) | 4.00 (4.00 to 4.00) |" in lines[4]
    assert lines[6].startswith("| peer |") and lines[6].endswith("|  |  |")


def test_a_job_is_cut_into_transactions() -> None:
    def sizes(**fields: int) -> list[list[int]]:
        job = Job(client="any", way="transactions", servers="any", topic="any", **fields)
        return [list(portions) for portions in transactions(job)]

    assert sizes(count=5, per_transaction=2) == [[2], [2], [1]]
    assert sizes(count=1_200, per_transaction=1_100) == [[500, 500, 100], [100]]
    assert sizes(count=700, transaction_ms=60_000) == [[500, 200]]
