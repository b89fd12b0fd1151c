"""`Finding`: the kinds of findings about one record. Bits, as one record can have several. Pure."""

from __future__ import annotations

from enum import IntFlag
from typing import Final


class Finding(IntFlag):
    """A finding about one record."""

    LOST = 1
    """acknowledged, but not in the log"""
    DUPLICATE = 2
    """more than once in the log, which its claim does not allow"""
    PHANTOM = 4
    """in the log, but never claimed"""
    CONTRADICTED = 8
    """claimed as certainly not persisted, but in the log"""
    MISPLACED = 16
    """in the log, but not at the acknowledged partition and offset"""
    ALTERED = 32
    """its key is not the one that was sent"""
    UNKNOWN_PRESENT = 64
    """the outcome was not known: it is in the log"""
    UNKNOWN_ABSENT = 128
    """the outcome was not known: it is not in the log"""
    REPEATED = 256
    """more than once in the log, which its claim allows (at least once)"""
    CLAIMED_TWICE = 512
    """two claims for one identity: two senders used the same run and stream, so nothing else can be said about it"""
    NOT_OURS = 1024
    """in the log without an identity of the audited runs: not judged"""


WRONG: Final = (
    Finding.LOST | Finding.DUPLICATE | Finding.PHANTOM | Finding.CONTRADICTED | Finding.MISPLACED | Finding.ALTERED
)
"""The findings that make a verdict unclean."""
