"""The format "aiokprod": from options and columns to a writer, or a clear error before any task runs."""

from __future__ import annotations

from collections.abc import Mapping
from inspect import currentframe
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pyspark.sql.datasource import DataSource

from aiokprod.spark.commit_log import check_claims_path
from aiokprod.spark.errors import SinkUsageError, check_packages
from aiokprod.spark.options import SinkOptions
from aiokprod.spark.schema import ColumnPlan
from aiokprod.spark.worker_process import freeze_modules

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from aiokprod.spark.messages import Opened
    from aiokprod.spark.writer import BatchWriter, StreamWriter


COMMIT_RUNNER: Final = "python_streaming_sink_runner.py"
"""Spark's module that makes a writer of a stream for its commit only: an opening there would fence the batch."""


class AiokprodSource(DataSource):
    """The format of `df.write.format("aiokprod")` and `df.writeStream.format("aiokprod")`. It writes; it does not read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))

    def __repr__(self) -> str:
        return f"AiokprodSource({len(self.options)} options)"

    @classmethod
    def name(cls) -> str:
        """Return the name that `format` is given."""
        return "aiokprod"

    def schema(self) -> StructType:
        """Refuse to read; Spark calls this for reads only."""
        raise SinkUsageError("format 'aiokprod' only writes: read with Spark's own format 'kafka'")

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        """Make the writer of a batch job, and open the batch if it is written exactly once.

        Raises:
            AiokprodError: it cannot be opened: the cluster cannot be reached, a right is missing, ...
            ConfigError: an option is missing, unknown or wrong, or nothing can be written to `claims.path`.
            SinkUsageError: a column is missing, unknown or has a wrong type, the mode is not append, or a package is missing.
        """
        from aiokprod.spark.writer import BatchWriter

        if overwrite:
            raise SinkUsageError("mode 'overwrite' is not supported, a log only grows: use .mode('append')")
        job_id = str(uuid4())
        options, plan = self._checked(schema, is_stream=False, job_id=job_id)
        opened = _opened(options)
        freeze_modules()
        return BatchWriter(options, plan, job_id, opened)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        """Make the writer of a batch of a stream, and open the batch if it is written exactly once. Raises as `writer`."""
        from aiokprod.spark.writer import StreamWriter

        if overwrite:
            raise SinkUsageError(
                "output mode 'complete' is not supported, a log only grows: use .outputMode('append'), or"
                " .foreachBatch(aiokprod.spark.write_each_batch(...)) with 'update'"
            )
        options, plan = self._checked(schema, is_stream=True)
        if _is_for_a_commit():
            return StreamWriter(options, plan)
        opened = _opened(options)
        freeze_modules()
        return StreamWriter(options, plan, opened)

    def _checked(self, schema: StructType, *, is_stream: bool, job_id: str = "") -> tuple[SinkOptions, ColumnPlan]:
        """Check everything that can be known before a task runs."""
        check_packages()
        options = SinkOptions.read(self.options, is_stream=is_stream, job_id=job_id)
        plan = ColumnPlan.of(schema.fields, options.topic)
        if options.claims_path is not None:
            check_claims_path(options.claims_path, is_stream=is_stream)
        return options, plan


def _is_for_a_commit() -> bool:
    """Return whether the caller of `streamWriter` makes a writer for a commit or an abort only."""
    frame = currentframe()
    for _ in range(2):
        frame = None if frame is None else frame.f_back
    return frame is not None and frame.f_code.co_filename.endswith(COMMIT_RUNNER)


def _opened(options: SinkOptions) -> Opened | None:
    """Open a batch that is written exactly once; None for others."""
    if options.exactly_once is None:
        return None
    from aiokprod.spark.exactly_once_driver import open_batch

    return open_batch(options, options.exactly_once)
