"""`FailingBatches`: which partitions have attempts that fail, and the log lines about it. One per pipeline.

    BrokerFlusher, an attempt failed -> note        the housekeeping, each half second -> tell -> the log

The flusher notes; nothing is written inside a state change. A trouble is a pair of topic and error code. It has a line when a
batch has failed for the second time, then after 5, 10, 20, 40 and 60 seconds if attempts still fail. It is over when no
partition has it any more: a batch was acknowledged, or there was nothing to send for a while. Topics for which there is no
place share one trouble for each code, so that none is silent.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final

from aiokprod.logs import Pace, StateLog, printable
from aiokprod.metrics import TopicCounters
from aiokprod.pipeline.partition.ledger import Ledger
from aiokprod.pipeline.partition.verdicts import NO_ANSWER
from aiokprod.wire.codes import name_of

NAMED: Final = 3
"""Lines about topics that the same tick may write; the other topics share one line."""
MOST: Final = 256
"""Troubles of topics that are kept; later ones share one for each code, until there is a place."""
SHARED: Final = ""
"""Stands for the topics that share one; no topic has this name."""
SWEEPS_S: Final = 1.0
"""Seconds between two searches for places that can be given up."""
QUIET_S: Final = 5.0
"""Seconds without a failed attempt after which a partition that has nothing to send has no trouble any more."""
REFUSED_S: Final = 60.0
"""Seconds after the last refusal of a topic in which it counts."""
REMEMBERED_S: Final = 120.0
"""Seconds for which a trouble that is over keeps its pace: one that comes and goes has no line each time."""
SECOND: Final = 2
"""Failed attempts of a batch that lead to a line; one alone is usual, when a partition gets another leader."""

HINTS: Final = {
    3: "see that the topic exists, and that its name is right",  # UNKNOWN_TOPIC_OR_PARTITION
    5: "the partition has no leader: see that the brokers of its replicas run",  # LEADER_NOT_AVAILABLE
    6: "the partition moves to another leader; if this goes on, see that its brokers reach each other",  # NOT_LEADER
    7: "the replicas are slow, or away: see that the brokers run and have capacity",  # REQUEST_TIMED_OUT
    9: "see that the brokers of its replicas run",  # REPLICA_NOT_AVAILABLE
    10: "larger than the topic takes: raise its max.message.bytes, or send less at once",  # MESSAGE_TOO_LARGE
    29: "this principal may not write to the topic: grant it WRITE",  # TOPIC_AUTHORIZATION_FAILED
    19: "fewer replicas are in sync than min.insync.replicas: bring the other brokers back",  # NOT_ENOUGH_REPLICAS
    20: "fewer replicas are in sync than min.insync.replicas: bring the other brokers back",  # ..._AFTER_APPEND
    56: "a disk of the broker has failed, or is full: look at the broker's own log",  # KAFKA_STORAGE_ERROR
    100: "the topic was deleted, or made again: see that it exists",  # UNKNOWN_TOPIC_ID
    103: "the topic was made again: its new id is asked for",  # INCONSISTENT_TOPIC_ID
    89: "a quota is exceeded: raise it, or send less",  # THROTTLING_QUOTA_EXCEEDED
    NO_ANSWER: "see that the broker runs, and that the network between is well",
}
"""What to do about a code that is answered again and again. Codes that are no failure of the cluster have no hint."""


UNVERIFIED: Final = "Unable to verify the partition"
"""So begins what a broker says where 19 stands for a coordinator of transactions that does not answer (broker: 10.4)."""


def hint_of(code: int, topic: str, text: str = "") -> str:
    """Return what to do about this code. `text`: how the attempt failed, in words."""
    hint = HINTS.get(code)
    if UNVERIFIED in text:
        hint = "the coordinator of the transaction does not answer: see that the brokers of __transaction_state run"
    run = f"`aiokprod doctor {topic}` looks for the cause"
    return run if hint is None else f"{hint}; {run}"


def _last_of_trouble(trouble: Trouble) -> float:
    return trouble.last_at


def _last_at(refused: Refused) -> float:
    return refused.last_at


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


class Trouble:
    """The failed attempts of one topic with one error code, or of all topics without a place (`is_shared`)."""

    __slots__ = (
        "began_at", "code", "failed", "failures", "has_line", "is_second", "is_shared", "last_at", "ledgers", "node", "pace",
        "partition", "text", "topic",
    )  # fmt: skip

    def __init__(self, topic: str, code: int, now: float) -> None:
        self.is_shared = topic == SHARED
        self.topic = topic  # as the three of the last failure, if it is shared
        self.code = code
        self.pace = Pace()
        self.ledgers: dict[tuple[str, int], Ledger] = {}  # by topic and partition: those that have it now
        self.began_at = now
        self.last_at = now
        self.failed = 0  # attempts since it began
        self.is_second = False  # a batch has failed twice since it began
        self.has_line = False  # since it began
        self.failures = 0  # of the batch that failed last, as the three below
        self.partition = -1
        self.node = -1
        self.text = ""

    @property
    def name(self) -> str:
        """The name of the code."""
        return "no answer" if self.code == NO_ANSWER else name_of(self.code)

    def drop_ended(self, now: float) -> None:
        """Forget the partitions that do not have it any more."""
        # One that has nothing to send has it for a while: its records have failed, and the next ones meet the same.
        is_quiet = now - self.last_at >= QUIET_S
        for key, ledger in list(self.ledgers.items()):
            if not ledger.is_failing or (is_quiet and not ledger.entries):
                del self.ledgers[key]

    def line(self) -> str:
        """Return the line that tells it."""
        others = len(self.ledgers) - 1
        of = "other topics" if self.is_shared else "the topic"
        more = "" if others < 1 else f" (and {others} more {'partition' if others == 1 else 'partitions'} of {of})"
        return (
            f"{self.topic}-{self.partition}{more}: a batch has failed {_times(self.failures)} and is sent again; the last"
            f" attempt, to broker {self.node}, {self.text}: {hint_of(self.code, self.topic, self.text)}"
        )

    def end(self, now: float) -> str:
        """Return the line that tells its end."""
        of = "other topics" if self.is_shared else f"topic {printable(self.topic)}"
        return (
            f"{of}: batches do not fail with {self.name} any more, after {now - self.began_at:.1f} s and {self.failed}"
            " failed attempts"
        )

    def __repr__(self) -> str:
        return f"<Trouble {self.name} of {self.topic}, {len(self.ledgers)} partitions>"


class Refused:
    """Batches of a topic that brokers refuse for good, while none is acknowledged; or of all topics without a place.

    Of those that share one, no acknowledgement is the end: it may be of another topic. They are over after `REFUSED_S`.
    """

    __slots__ = (
        "_counters", "_delivered", "_topics", "code", "count", "has_line", "is_shared", "last_at", "pace", "since", "topic"
    )  # fmt: skip

    def __init__(self, topic: str, code: int, counters: TopicCounters, now: float) -> None:
        self.is_shared = topic == SHARED
        self.topic = topic
        self.code = code
        self.count = 0
        self.pace = Pace()
        self.has_line = False
        self.since = self.last_at = now
        self._topics: set[str] = set()  # that share it, up to a bound: a new one has a line soon
        self._counters = counters
        self._delivered = counters.records_delivered.value

    def again(self, topic: str, now: float) -> None:
        """Note one more."""
        if self.is_shared:
            if now - self.last_at > REFUSED_S:
                self._topics.clear()
            if topic not in self._topics and len(self._topics) < MOST:
                self._topics.add(topic)
                self.pace.soon(now)
            self.topic = topic
        delivered = self._counters.records_delivered.value
        if (delivered != self._delivered and not self.is_shared) or now - self.last_at > REFUSED_S:
            # Others were taken meanwhile: this is another time.
            self._delivered, self.count, self.since, self.has_line = delivered, 0, now, False
        self.count += 1
        self.last_at = now

    def lasts(self, now: float) -> bool:
        """Return whether it is so still, as far as that can be seen. From any thread."""
        return now - self.last_at <= REFUSED_S and not self.is_over()

    def is_over(self) -> bool:
        """Return whether one has been acknowledged since. From any thread."""
        return not self.is_shared and self._counters.records_delivered.value != self._delivered

    def line(self, now: float) -> str:
        """Return what is refused, and what to do."""
        of = "more topics, the last of them" if self.is_shared else "topic"
        batches = "a batch" if self.count == 1 else f"{self.count} batches"
        return (
            f"brokers refuse records of {of} {printable(self.topic)!r}: {name_of(self.code)}, {batches} in the last"
            f" {now - self.since:.1f} s: {hint_of(self.code, self.topic)}"
        )

    def __repr__(self) -> str:
        return f"<Refused {self.count} of {self.topic}>"


class FailingBatches:
    """The troubles of one pipeline, and what is refused for good."""

    def __init__(self) -> None:
        self._troubles: dict[tuple[str, int], Trouble] = {}
        self._shared: dict[int, Trouble] = {}  # by code: of the topics without a place
        self._refused: dict[tuple[str, int], Refused] = {}
        self._swept_at = -inf

    def note_refused(self, topic: str, code: int, counters: TopicCounters, now: float) -> None:
        """Note a batch that is not sent again.

        Args:
            topic: of the batch.
            code: as answered.
            counters: of the topic.
            now: loop time.
        """
        refused = self._refused.get((topic, code))
        if refused is None:
            if len(self._refused) >= MOST:
                self._sweep(now)
            key = (topic if len(self._refused) < MOST else SHARED, code)
            refused = self._refused.get(key)
            if refused is None:
                refused = self._refused[key] = Refused(key[0], code, counters, now)
        refused.again(topic, now)

    def refusals(self, now: float) -> list[Refused]:
        """Return what brokers refuse now, the newest first. From any thread."""
        found = [each for each in list(self._refused.values()) if each.lasts(now)]
        found.sort(key=_last_at, reverse=True)
        return found

    def note(
        self, topic: str, partition: int, ledger: Ledger, node: int, code: int, text: str, failures: int, now: float
    ) -> None:
        """Note a failed attempt of a batch that is sent again.

        Args:
            topic: of the batch.
            partition: of the batch.
            ledger: of the partition.
            node: the broker.
            code: as answered; NO_ANSWER: there was no answer.
            text: how it failed, in words that follow "the attempt".
            failures: failed attempts of this batch, this one included.
            now: loop time.
        """
        trouble = self._troubles.get((topic, code))
        if trouble is None:
            trouble = self._new_trouble(topic, partition, code, now)
        if not trouble.ledgers:  # it is new, or was over
            trouble.began_at, trouble.failed = now, 0
            trouble.is_second = trouble.has_line = False
        if trouble.is_shared:
            trouble.topic = topic
            if (topic, partition) not in trouble.ledgers:
                trouble.pace.soon(now)
        trouble.ledgers[topic, partition] = ledger
        trouble.last_at = now
        trouble.partition, trouble.node, trouble.text, trouble.failures = partition, node, text, failures
        trouble.failed += 1
        if failures >= SECOND:
            trouble.is_second = True

    def _new_trouble(self, topic: str, partition: int, code: int, now: float) -> Trouble:
        """Return the trouble of a topic that has no place yet."""
        if len(self._troubles) >= MOST:
            self._sweep(now)
        shared = self._shared.get(code)
        if len(self._troubles) < MOST:
            if shared is not None:
                shared.ledgers.pop((topic, partition), None)
            trouble = self._troubles[topic, code] = Trouble(topic, code, now)
            return trouble
        if shared is None:
            shared = self._shared[code] = Trouble(SHARED, code, now)
        return shared

    def _sweep(self, now: float) -> None:
        """Give up the places of what is over, the oldest first; not at each failed attempt, as all places are looked at."""
        if now - self._swept_at < SWEEPS_S:
            return
        self._swept_at = now
        over = [trouble for trouble in self._troubles.values() if not trouble.ledgers]
        over.sort(key=_last_of_trouble)
        for trouble in over[: len(over) // 2 + 1]:
            del self._troubles[trouble.topic, trouble.code]
        for key, refused in list(self._refused.items()):
            if not refused.lasts(now) and not refused.has_line:
                del self._refused[key]

    def newest(self) -> Trouble | None:
        """Return the trouble that lasts, with the newest failure; None: there is none. From any thread."""
        newest: Trouble | None = None
        for trouble in [*self._troubles.values(), *self._shared.values()]:
            lasts = False
            for ledger in list(trouble.ledgers.values()):
                if ledger.is_failing:
                    lasts = True
                    break
            if lasts and (newest is None or trouble.last_at > newest.last_at):
                newest = trouble
        return newest

    def tell(self, log: StateLog, now: float) -> None:
        """Write the lines that are due; outside of every state change. `now`: loop time."""
        if self._refused:
            self._tell_refused(log, now)
        if not self._troubles:
            return
        due: list[tuple[Trouble, str]] = []
        over: list[Trouble] = []
        for trouble in [*self._troubles.values(), *self._shared.values()]:
            had = bool(trouble.ledgers)
            trouble.drop_ended(now)
            if not trouble.ledgers:
                if had:
                    trouble.pace.ended(now)
                    if trouble.has_line:
                        over.append(trouble)
                elif now - trouble.last_at > REMEMBERED_S:
                    self._forget(trouble)
            elif trouble.is_second:
                held = trouble.pace.passes(now)
                if held is not None:
                    trouble.has_line = True
                    due.append((trouble, held))
        self._tell_due(log, due)
        self._tell_over(log, over, now)

    def _forget(self, trouble: Trouble) -> None:
        if trouble.is_shared:
            del self._shared[trouble.code]
        else:
            del self._troubles[trouble.topic, trouble.code]

    def _tell_refused(self, log: StateLog, now: float) -> None:
        due: list[Refused] = []
        for key, each in list(self._refused.items()):
            if each.lasts(now):
                # From the second batch on: one alone may be a bad record, whose caller has the error.
                if each.count >= SECOND and each.pace.passes(now) is not None:
                    each.has_line = True
                    due.append(each)
                continue
            if each.has_line and each.is_over():
                log.announced(
                    f"topic {printable(each.topic)}: brokers take records again, after {now - each.since:.1f} s of"
                    f" {name_of(each.code)}",
                    topic=each.topic,
                    error=name_of(each.code),
                )
            if each.has_line:
                each.pace.ended(now)
                each.has_line = False
            if now - each.last_at > REMEMBERED_S:
                del self._refused[key]
        for each in due[:NAMED]:
            log.warned_now(each.line(now), topic=each.topic, error=name_of(each.code))
        if len(due) > NAMED:
            last, count = due[-1], len(due) - NAMED
            log.warned_now(
                f"brokers refuse records of {count} more {'topic' if count == 1 else 'topics'}, as those of"
                f" {printable(last.topic)!r}: {name_of(last.code)}: {hint_of(last.code, last.topic)}",
                error=name_of(last.code),
            )

    @staticmethod
    def _tell_due(log: StateLog, due: Sequence[tuple[Trouble, str]]) -> None:
        for trouble, held in due[:NAMED]:
            failed = f" ({trouble.failed} failed attempts so far)" if held else ""
            log.warned_now(
                trouble.line() + failed,
                topic=trouble.topic,
                partition=trouble.partition,
                broker=trouble.node,
                error=trouble.name,
            )
        if len(due) > NAMED:
            last = due[-1][0]
            hint = hint_of(last.code, last.topic, last.text)
            count = len(due) - NAMED
            log.warned_now(
                f"batches of {count} more {'topic' if count == 1 else 'topics'} fail and are sent again, as those of"
                f" {last.topic!r}: the last attempt, to broker {last.node}, {last.text}: {hint}",
                broker=last.node,
                error=last.name,
            )

    @staticmethod
    def _tell_over(log: StateLog, over: Sequence[Trouble], now: float) -> None:
        for trouble in over[:NAMED]:
            log.announced(trouble.end(now), topic=None if trouble.is_shared else trouble.topic, error=trouble.name)
        if len(over) > NAMED:
            log.announced(f"batches of {len(over) - NAMED} more topics do not fail any more")

    def __repr__(self) -> str:
        return f"<FailingBatches {[*self._troubles.values(), *self._shared.values()]}>"
