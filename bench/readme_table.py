"""The table of figures in README.md, made from the tables of a run and written between its two marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tables import Of, Table, cpu_us, rate

BEGIN = "<!-- figures: nox -s bench -- --docs -->"
END = "<!-- end of figures -->"
HOW = """Outcomes are read as follows:

- CPU per record, *not read*: all records are sent, then `flush()`. *A callback*: it reads the offset of its record (Java's tool
  takes the time instead). *Awaited*: 20,000 sends at a time, each awaited (with AIOProducer: gathered).
- The last two columns: every outcome is awaited, by 1,000 tasks or by one. One at a time, confluent-kafka's callback and
  kafka-python block instead of awaiting.
"""
"""What the columns mean. It stands between the marks, too, so that text and figures are always of one run."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its heading, how the title of its table begins, the figure of a run and its format.

    A name of the table is a client and what it does there; the column is of the clients that do one of `ways`.
    """

    heading: str
    table: str
    of: Of
    form: str
    ways: tuple[str, ...]


COLUMNS: tuple[Column, ...] = (
    Column("outcomes not read, µs", "Outcomes: ", cpu_us, ".2f", ("not read", "no callback")),
    Column(
        "a callback for each, µs",
        "Outcomes: ",
        cpu_us,
        ".2f",
        ("a done callback each", "callback that reads the offset", "ProducerPerformance"),
    ),
    Column("each awaited, µs", "Outcomes: ", cpu_us, ".2f", ("each awaited, 20,000 at a time", "awaited")),
    Column("1,000 tasks awaiting, records/s", "1,000 tasks", rate, ",.0f", ("its defaults", "linger 0")),
    Column(
        "one `await` at a time, p50, ms", "`await send`", lambda run: run.p50_ms, ".2f", ("its defaults", "linger 0")
    ),
)


def has_all(tables: Sequence[Table]) -> bool:
    """Return whether each column has its table: a run of some items leaves the README as it is."""
    return all(any(table.title.startswith(column.table) for table in tables) for column in COLUMNS)


def write_table(tables: Sequence[Table], readme: Path) -> None:
    """Write the figures between the README's marks; a figure that this run did not measure stays empty."""
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n{HOW}\n{table_of(tables)}\n{END}{after}")


def table_of(tables: Sequence[Table]) -> str:
    """Return a line for each client: medians, and in brackets the ratio to aiokprod, compiled."""
    cells: dict[str, list[str]] = {}
    for number, column in enumerate(COLUMNS):
        table = next((each for each in tables if each.title.startswith(column.table)), None)
        if table is None:
            continue
        figures = {
            name.removesuffix(way).removesuffix(", "): table.middle(name, column.of)
            for name in table.names
            for way in column.ways
            if name.endswith(f", {way}")
        }
        if not figures:
            continue
        first, ours = next(iter(figures.items()))
        for client, figure in figures.items():
            row = cells.setdefault(client, [""] * len(COLUMNS))
            if figure is not None and ours:
                ratio = "" if client == first else f" ({figure / ours:.2g}x)"
                row[number] = format(figure, column.form) + ratio
    head = ["", *(column.heading for column in COLUMNS)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join([name, *row])} |" for name, row in cells.items())])
