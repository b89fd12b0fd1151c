"""`PipelineSettings`: the options the stages need, in seconds and bytes. Made once by the pipeline from the config."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aiokprod.config import ProducerConfig
from aiokprod.pipeline.partition.batch_fill import most_plain_bytes
from aiokprod.records.compression import plain_that_fits

RECORD_OVERHEAD_BYTES: Final = 120
"""Charged beside a record's own bytes: a cell in each column, the objects in them, a kept Delivery; measured by bench/"""


@dataclass(slots=True, kw_only=True, repr=False, eq=False)
class PipelineSettings:
    """The options that the stages read on every batch; `ProducerConfig` holds them as Kafka names them."""

    acks: int
    idempotent: bool
    linger_s: float
    batch_bytes: int
    most_batch_bytes: int
    """Before compression."""
    max_request_bytes: int
    delivery_timeout_s: float
    request_timeout_s: float
    max_block_s: float
    requests_in_flight: int
    retries: int
    availability_timeout_s: float
    codec: str
    codec_level: int | None
    keep_failed_records: bool

    @property
    def broker_timeout_ms(self) -> int:
        """The `timeout_ms` on the wire: shorter than ours, so that a slow replica set gives an answer, not a torn
        connection. (architecture: request.timeout less min(5 s, a quarter))"""
        return max(1, int(1000 * (self.request_timeout_s - min(5.0, self.request_timeout_s / 4))))

    @classmethod
    def from_config(cls, config: ProducerConfig) -> PipelineSettings:
        """Make the settings. Milliseconds become seconds here and nowhere else in the pipeline."""
        return cls(
            acks=config.required_acks,
            idempotent=config.idempotent,
            linger_s=config.linger_ms / 1000,
            batch_bytes=config.batch_size,
            most_batch_bytes=_most_batch_bytes(config),
            max_request_bytes=config.max_request_size,
            delivery_timeout_s=config.delivery_timeout,
            request_timeout_s=config.request_timeout_ms / 1000,
            max_block_s=config.max_block_ms / 1000,
            requests_in_flight=config.max_in_flight_requests_per_connection,
            availability_timeout_s=config.partitioner_availability_timeout_ms / 1000,
            retries=config.retries,
            codec=config.compression_type,
            codec_level=config.compression_level,
            keep_failed_records=config.keep_failed_records and config.on_delivery_error is not None,
        )


def _most_batch_bytes(config: ProducerConfig) -> int:
    if config.compression_type == "none":
        return config.batch_size
    if config.required_acks == 0:
        # No answer says that a batch was too large for its topic: records would be lost by a wrong estimate.
        return min(config.batch_size, plain_that_fits(config.max_request_size))
    return most_plain_bytes(config.batch_size, config.max_request_size, config.buffer_memory)
