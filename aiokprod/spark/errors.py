"""Errors of the sink: a job that cannot be written, and a row that was not delivered.

Spark shows the text of an exception and its traceback, so the text is complete by itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from aiokprod.errors import AiokprodError, DeliveryError, ProducerFailedError, UsageError


class SinkUsageError(UsageError):
    """The job cannot be written like this: its columns, its mode, its trigger. Nothing was sent."""

    advice = "Correct the job; nothing was sent."


def check_packages() -> None:
    """Check that the packages the sink needs are installed.

    Raises:
        SinkUsageError: a package is missing; the text names the extra that has it.
    """
    for name in ("numpy", "pyarrow"):
        try:
            import_module(name)
        except ImportError as missing:
            raise SinkUsageError(
                f"writing needs {name} ({missing}): pip install 'aiokprod[spark]' on the driver and every executor"
            ) from missing


class RowError(DeliveryError):
    """A row was not delivered; other rows of the task may be in the log. `row` counts from 0 within the task."""

    advice = (
        "The task fails; Spark runs it again if it may (spark.task.maxFailures), which writes its other rows again."
    )

    def __init__(self, message: str = "", *, row: int | None = None, **facts: Any) -> None:
        super().__init__(message, **facts)
        self.row = row


def root_of(error: AiokprodError) -> AiokprodError:
    """Return the cause if the error only says that the producer has failed: the next task gets another producer.

    The cause is what a user of Spark can act on; "close() it and start() it again" is not.
    """
    cause = error.__cause__ if type(error) is ProducerFailedError else None
    return cause if isinstance(cause, AiokprodError) else error
