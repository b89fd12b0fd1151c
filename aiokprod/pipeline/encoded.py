"""`Encoded`: the record section of one batch, encoded once. The header is made when it is stamped."""

from __future__ import annotations

from aiokprod.pipeline.batch import BATCH_OVERHEAD_BYTES


class Encoded:
    """Immutable: the transport may hold the section for as long as it likes."""

    __slots__ = ("codec", "section")

    def __init__(self, section: bytes | bytearray, codec: str) -> None:
        self.section = section
        self.codec = codec

    @property
    def size_bytes(self) -> int:
        """On the wire, header included."""
        return BATCH_OVERHEAD_BYTES + len(self.section)

    def __repr__(self) -> str:
        return f"<Encoded {self.size_bytes} bytes {self.codec}>"
