"""`TopicLines`: the log lines about topics that the cluster does not know, that appear, or that were made again.

One per start of a client. A line about a topic that is not there follows the second answer that says so: the first one is
also the answer with which brokers create it, and no reason to worry. It has an end when the topic is there.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Sequence
from typing import Final

from aiokprod.cluster.metadata.snapshot import ClusterSnapshot, TopicSnapshot
from aiokprod.logs import StateLog, printable
from aiokprod.wire.codes import ErrorCode
from aiokprod.wire.reader import ZERO_UUID

UNKNOWN: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
TOLD_TOPICS: Final = 3
"""Topics that one line names, or that the same answer leads to a line of."""


class TopicLines:
    """The lines of one client.

    Args:
        log: of its cluster.
        longest_block: how long records wait for a topic, in words.
        may_create: brokers are asked to create topics.
    """

    def __init__(self, log: StateLog, longest_block: str, *, may_create: bool) -> None:
        self._log = log
        self._longest_block = longest_block
        self._may_create = may_create
        self._missed: list[str] = []  # topics that are unknown since the newest answer
        self._doubted: list[str] = []  # since the answer before it: the next one shows whether they stay so
        self._told: dict[str, float] = {}  # topics of which the log says that they are unknown: since when

    def changed(self, old: ClusterSnapshot, new: ClusterSnapshot, now: float) -> None:
        """Note topics that are gone; write which ones are there again, and which were made again. `now`: loop time."""
        again: list[tuple[TopicSnapshot, TopicSnapshot]] = []
        for name, topic in new.topics.items():
            known = old.topics.get(name)
            if topic is known:
                continue
            if topic.error_code == UNKNOWN and (known is None or known.error_code != UNKNOWN):
                self._missed.append(name)
            if known is not None and _is_another(known, topic):
                again.append((known, topic))
        if self._told:
            self._tell_found(new, now)
        for known, topic in again[:TOLD_TOPICS]:
            self._tell_again(known, topic)
        if len(again) > TOLD_TOPICS:
            self._log.warned("made again, many", f"{len(again) - TOLD_TOPICS} more topics were deleted and made again")

    def answered(self, snapshot: ClusterSnapshot, now: float) -> None:
        """Write which topics a second answer has said that it does not know. `now`: loop time."""
        topics = snapshot.topics
        unknown = [name for name in self._doubted if name in topics and topics[name].error_code == UNKNOWN]
        self._doubted, self._missed = self._missed, []
        if not unknown:
            return
        is_one = len(unknown) == 1
        named = _named(unknown)
        how = (
            "brokers do that themselves if auto.create.topics.enable is on"
            if self._may_create
            else "brokers are not asked to do that, because allow_auto_create_topics is off"
        )
        is_written = self._log.warned(
            f"unknown {named}",
            f"the cluster does not know {'topic' if is_one else 'topics'} {named}: records wait up to"
            f" {self._longest_block} until {'it is' if is_one else 'they are'} created"
            f" ({how})",
        )
        if is_written:
            self._told.update(dict.fromkeys(unknown, now))

    def _tell_found(self, new: ClusterSnapshot, now: float) -> None:
        found: list[tuple[str, float]] = []
        for name, since in list(self._told.items()):
            topic = new.topics.get(name)
            if topic is not None and topic.is_usable:
                found.append((name, since))
            if topic is None or topic.is_settled or topic.is_usable:  # nothing needs it any more, or it is there
                del self._told[name]
        if found:
            is_one = len(found) == 1
            longest_s = now - min([since for _, since in found])
            self._log.announced(
                f"{'topic' if is_one else 'topics'} {_named([name for name, _ in found])} {'is' if is_one else 'are'} there"
                f" now, after {'' if is_one else 'up to '}{longest_s:.1f} s",
                topic=found[0][0] if is_one else None,
            )

    def _tell_again(self, known: TopicSnapshot, topic: TopicSnapshot) -> None:
        name = printable(topic.name)
        ids = "the brokers tell no ids, but other leaders or epochs show it"
        if topic.topic_id != known.topic_id:
            ids = f"its id was {_shown(known.topic_id)}, and is {_shown(topic.topic_id)}"
        self._log.warned(
            f"made again {name}",
            f"topic {name!r} was deleted and made again: {ids}. Records that were acknowledged before are gone"
            " with the former one",
            topic=topic.name,
        )

    def __repr__(self) -> str:
        return f"<TopicLines {len(self._told)} unknown>"


def _is_another(known: TopicSnapshot, topic: TopicSnapshot) -> bool:
    """Return whether a topic is another one than that of the same name which was known."""
    if ZERO_UUID in (known.topic_id, topic.topic_id):
        return topic.incarnation != known.incarnation
    return topic.topic_id != known.topic_id or topic.incarnation != known.incarnation


def _named(topics: Sequence[str]) -> str:
    more = f" and {len(topics) - TOLD_TOPICS} more" if len(topics) > TOLD_TOPICS else ""
    return ", ".join([repr(name) for name in topics[:TOLD_TOPICS]]) + more


def _shown(topic_id: bytes) -> str:
    """Return an id as Kafka's own tools show it."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")
