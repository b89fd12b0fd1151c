"""The protocols that classic members offer: which one a group uses, and the topics in a consumer's metadata. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from aiokprod.errors import ProtocolError
from aiokprod.testing.mock.groups.classic_members import ClassicMember
from aiokprod.wire.reader import Reader

CONSUMER: Final = "consumer"
"""The protocol type of consumers, whose metadata are a subscription."""


def chosen_protocol(members: Iterable[ClassicMember]) -> str | None:
    """Return the protocol that most members prefer among those that all of them have; None if there is none."""
    offers = [[name for name, _ in member.protocols] for member in members]
    shared: set[str] = set(offers[0]).intersection(*offers[1:]) if offers else set()
    votes = Counter(next(name for name in offer if name in shared) for offer in offers) if shared else Counter[str]()
    return max(votes, key=lambda name: votes[name], default=None)


def subscribed_topics(metadata: bytes) -> set[str] | None:
    """Return the topics of a consumer's subscription (ConsumerProtocolSubscription); None if it cannot be read."""
    try:
        reader = Reader(metadata)
        if reader.int16() < 0:
            return None
        return {reader.string(False) for _ in range(reader.count(False))}
    except ProtocolError:
        return None
