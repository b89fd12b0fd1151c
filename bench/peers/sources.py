"""Sources of records, the same for every client: called once before the clock starts, and the result once after."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from job import Job, Row

Rows = Callable[[], Iterator[Row]]
"""A function that is called while the clock runs: reading the records is measured too."""


def plain(job: Job) -> Rows:
    """Return a source of ready Python objects."""
    rows = job.rows()
    return lambda: rows


def arrow(job: Job) -> Rows:
    """Return a source of rows in Arrow columns, which are no Python objects before."""
    from column_data import columns_of, rows_of

    arrays = columns_of(job)
    return lambda: rows_of(*arrays)
