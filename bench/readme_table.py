"""The table of figures in README.md, made from the tables of a run and written between its two marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tables import Of, Table, cpu_us, rate

BEGIN = "<!-- figures: nox -s bench -- --docs -->"
END = "<!-- end of figures -->"
COLUMNS: tuple[tuple[str, str, Of, str], ...] = (
    ("Firehose: 100 B values, no keys, 6", "CPU per record, µs", cpu_us, ".2f"),
    ("Firehose: 100 B values, 100,000 keys, 2 headers", "with key and two headers, µs", cpu_us, ".2f"),
    ("1,000 tasks", "1,000 tasks awaiting, records/s", rate, ",.0f"),
    ("`await send`", "one `await` at a time, p50, ms", lambda run: run.p50_ms, ".2f"),
)
"""Of each column: how the title of its table begins, its heading, the attribute of a run, its format."""


def write_table(tables: Sequence[Table], readme: Path) -> None:
    """Write the figures between the README's marks; a figure that this run did not measure stays empty."""
    text = readme.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n{table_of(tables)}\n{END}{after}")


def table_of(tables: Sequence[Table]) -> str:
    """Return a line for each client: medians, and in brackets the ratio to aiokprod, compiled."""
    found = [next((each for each in tables if each.title.startswith(title)), None) for title, *_ in COLUMNS]
    cells: dict[str, list[str]] = {}
    for column, (table, (_, _, of, form)) in enumerate(zip(found, COLUMNS, strict=True)):
        if table is None:
            continue
        ours = table.middle(table.names[0], of)
        for name in table.names:
            if "send_many" in name or "gather" in name:
                continue
            figure = table.middle(name, of)
            row = cells.setdefault(plain(name), [""] * len(COLUMNS))
            if figure is not None and ours:
                row[column] = format(figure, form) + ("" if name == table.names[0] else f" ({figure / ours:.2g}x)")
    head = ["", *(name for _, name, _, _ in COLUMNS)]
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join([*lines, *(f"| {' | '.join([name, *row])} |" for name, row in cells.items())])


def plain(name: str) -> str:
    """Return the client's name without its way of sending, which the columns tell."""
    for ending in (", send", ", its defaults", ", linger 0"):
        name = name.removesuffix(ending)
    return name
