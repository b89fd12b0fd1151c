"""`Finding`: what can be said of one record. Bits, as one record can have several. Pure."""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class Finding(IntFlag):
    """What can be said of one record."""

    LOST = 1
    """acknowledged, and not in the log"""
    DUPLICATE = 2
    """more than once in the log, and its claim does not allow that"""
    PHANTOM = 4
    """in the log, and never claimed"""
    CONTRADICTED = 8
    """claimed as certainly not persisted, and in the log"""
    MISPLACED = 16
    """in the log, but not at the partition and offset that were told"""
    ALTERED = 32
    """its key is not the one that was sent"""
    UNKNOWN_PRESENT = 64
    """nobody could tell: it is in the log"""
    UNKNOWN_ABSENT = 128
    """nobody could tell: it is not in the log"""
    REPEATED = 256
    """more than once in the log, as its claim allows (at least once)"""
    CLAIMED_TWICE = 512
    """two claims for one identity: two senders had the same run and stream, so nothing else can be said of it"""
    NOT_OURS = 1024
    """in the log without an identity of these runs: not judged"""


WRONG: Final = (
    Finding.LOST | Finding.DUPLICATE | Finding.PHANTOM | Finding.CONTRADICTED | Finding.MISPLACED | Finding.ALTERED
)
"""The findings that make a verdict unclean."""
