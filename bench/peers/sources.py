"""Where the records of a job come from, the same for every client: called once before the clock runs, once while it does."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from job import Job, Row

Rows = Callable[[], Iterator[Row]]
"""What is called while the clock runs: reading them is measured too."""


def plain(job: Job) -> Rows:
    """Python objects that are there."""
    rows = job.rows()
    return lambda: rows


def arrow(job: Job) -> Rows:
    """The rows of Arrow columns, none of which is a Python object before."""
    from column_data import columns_of, rows_of

    arrays = columns_of(job)
    return lambda: rows_of(*arrays)
