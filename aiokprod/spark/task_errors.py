"""The error of a task as Spark shows it: one error, with the options under the names that the job gave them.

Spark shows the text of a task's exception behind its whole traceback. So an error whose text is complete is raised without
the frames and causes below the sink; the text of an internal error is not, and keeps them.
"""

from __future__ import annotations

from aiokprod.config import ProducerConfig
from aiokprod.errors import AiokprodError, BootstrapError, ProducerFailedError, UnknownTopicError
from aiokprod.spark.errors import root_of
from aiokprod.spark.options import in_spark_names


def as_spark_shows_it(error: AiokprodError, config: ProducerConfig) -> AiokprodError:
    """Return the error to raise from a task, without a traceback and a cause; the internal error itself.

    Args:
        error: raised by the task.
        config: the options of its producer.
    """
    told = root_of(error)
    if isinstance(told, ProducerFailedError):
        return error  # a bug, or another instance: the traceback is what a report of it needs
    copy = told.clone()
    copy.__cause__ = None
    copy.message = in_spark_names(told.message)
    copy.args = (copy.message, *told.args[1:])
    notes: list[str] = list(getattr(told, "__notes__", ()))
    if told is not error:
        notes += [note for note in getattr(error, "__notes__", ()) if note != error.advice]
    if _has_waited(told, config):
        notes.append(
            f"A task waits {config.max_block_ms:g} ms for the cluster, and as long for an unknown topic (max_block_ms)."
        )
    copy.__notes__ = [in_spark_names(note) for note in notes]
    return copy


def _has_waited(error: AiokprodError, config: ProducerConfig) -> bool:
    """Return True if the error would have come later with a larger `max_block_ms`, and might not have come at all."""
    if isinstance(error, UnknownTopicError):
        return error.elapsed_s is not None and error.elapsed_s * 1000 >= config.max_block_ms
    return isinstance(error, BootstrapError)
