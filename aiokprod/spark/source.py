"""The format "aiokprod": from options and columns to a writer, or a clear error before any task runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from aiokprod.spark.commit_log import check_claims_path
from aiokprod.spark.errors import SinkUsageError, check_packages
from aiokprod.spark.options import SinkOptions
from aiokprod.spark.schema import ColumnPlan

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from aiokprod.spark.writer import BatchWriter, StreamWriter


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
        """Make the writer of a batch job.

        Raises:
            ConfigError: an option is missing, unknown or wrong, or nothing can be written to `claims.path`.
            SinkUsageError: a column is missing, unknown or has a wrong type, the mode is not append, or a package is missing.
        """
        from aiokprod.spark.writer import BatchWriter

        if overwrite:
            raise SinkUsageError("mode 'overwrite' is not supported, a log only grows: use .mode('append')")
        return BatchWriter(*self._checked(schema, is_stream=False))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        """Make the writer of a batch of a stream. Raises as `writer`."""
        from aiokprod.spark.writer import StreamWriter

        if overwrite:
            raise SinkUsageError(
                "output mode 'complete' is not supported, a log only grows: use .outputMode('append'), or"
                " .foreachBatch(aiokprod.spark.write_each_batch(...)) with 'update'"
            )
        return StreamWriter(*self._checked(schema, is_stream=True))

    def _checked(self, schema: StructType, *, is_stream: bool) -> tuple[SinkOptions, ColumnPlan]:
        """Check everything that can be known before a task runs."""
        check_packages()
        options = SinkOptions.read(self.options)
        plan = ColumnPlan.of(schema.fields, options.topic)
        if options.claims_path is not None:
            check_claims_path(options.claims_path, is_stream=is_stream)
        return options, plan
