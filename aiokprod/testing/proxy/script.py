"""`Script`: the effects of the faults in force on the requests and answers that pass a proxy.

One per FaultProxy, on its loop. It decides; a `Link` waits and writes. Bodies are decoded only where a fault looks into
them, and those of Metadata answers, which tell names and leaders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from aiokprod.testing.faults import Answer, FaultRules, ItemEffect, Rewrite, Rule, Throttle
from aiokprod.testing.proxy.cluster_view import ClusterView
from aiokprod.testing.proxy.codecs import codec_of, read_answer, read_request, request_payload
from aiokprod.testing.proxy.edits import METADATA, Edits, answer_here, change_metadata, items_of, judge, put_in
from aiokprod.testing.proxy.frames import ProxyFrame, answer_payload, expects_answer
from aiokprod.wire.messages.metadata import MetadataResponse


@runtime_checkable
class Throttled(Protocol):
    """An answer that can name a throttle; nearly all can."""

    throttle_time_ms: int


@runtime_checkable
class Encodable(Protocol):
    """A message, as a test's callable may return it."""

    def encode(self, version: int) -> bytes:
        """Return the body in this version."""
        ...


@dataclass(slots=True)
class TakenUp:
    """A request that has come in, and the rule that matched it."""

    frame: ProxyFrame
    payload: bytes
    rule: Rule | None


@dataclass(slots=True)
class Edited:
    """The request as it is passed on, or the answer in its place, and what is to be done to the broker's answer."""

    payload: bytes
    edits: Edits | None = None
    own_answer: bytes | None = None


class Script:
    """The decisions of one proxy's faults about requests and answers."""

    def __init__(self, faults: FaultRules) -> None:
        self._faults = faults
        self.view = ClusterView()

    def take_up(self, frame: ProxyFrame, payload: bytes) -> TakenUp:
        """Match a request against the rules; counts as a hit."""
        key = frame.api_key
        if not (self._faults and self._faults.has_request_rules(key)):
            return TakenUp(frame, payload, None)
        request = read_request(frame, payload)
        items = [] if request is None else items_of(key, frame.version, request, self.view)
        return TakenUp(frame, payload, self._faults.for_request(key, frame.broker, items))

    def made_answer(self, effect: Answer, taken: TakenUp) -> bytes | None:
        """Return the answer of the test's callable; None for silence. It gets the body's bytes if there is no codec."""
        frame = taken.frame
        request = read_request(frame, taken.payload)
        return _encoded(frame, effect.make(taken.payload if request is None else request, frame.version))

    def edit(self, taken: TakenUp) -> Edited:
        """Ask about each topic and partition of a request."""
        frame, payload = taken.frame, taken.payload
        key = frame.api_key
        if not (self._faults and self._faults.has_item_rules(key)):
            return Edited(payload)
        request, codec = read_request(frame, payload), codec_of(key)
        if request is None or codec is None:
            return Edited(payload)
        edits = judge(
            key, frame.version, request, lambda topic, partition: self._ask(frame, topic, partition), self.view
        )
        if not edits:
            return Edited(payload)
        if edits.is_answered_here and expects_answer(key, frame.version, payload):
            return Edited(payload, own_answer=answer_payload(frame, answer_here(edits, codec).encode(frame.version)))
        return Edited(request_payload(frame, payload, request) if edits.taken_out else payload, edits)

    def answer(self, frame: ProxyFrame, rule: Rule | None, edits: Edits | None, payload: bytes) -> bytes | None:
        """Return what the client gets in place of this answer, before damage; None for silence.

        Args:
            frame: the request.
        """
        effect = None if rule is None else rule.fault.effect
        is_metadata = frame.api_key == METADATA
        if not is_metadata and edits is None and not isinstance(effect, Throttle | Rewrite):
            return payload
        message = read_answer(frame, payload)
        if message is None:
            return payload
        if isinstance(message, MetadataResponse):
            self.view.learn(message)
            if self._faults.has_item_rules(METADATA):
                change_metadata(
                    message,
                    lambda topic, partition: self._ask(frame, topic, partition),
                    names_partitions=self._faults.names_partitions,
                )
            elif not isinstance(effect, Throttle | Rewrite):
                return payload
        if edits is not None:
            message = put_in(edits, message)
        if isinstance(effect, Throttle) and isinstance(message, Throttled):
            message.throttle_time_ms = effect.milliseconds
        made: object = effect.change(message, frame.version) if isinstance(effect, Rewrite) else message
        return _encoded(frame, made)

    def for_chunk(self, broker: int, *, is_request: bool) -> Rule | None:
        """Return the rule for bytes without visible frames; counts as a hit."""
        return self._faults.for_chunk(broker, is_request=is_request)

    def _ask(self, frame: ProxyFrame, topic: str, partition: int) -> ItemEffect | None:
        return self._faults.for_item(frame.api_key, frame.broker, topic, partition)


def _encoded(frame: ProxyFrame, made: object) -> bytes | None:
    if made is None:
        return None
    if isinstance(made, bytes):
        return answer_payload(frame, made)
    if not isinstance(made, Encodable):
        raise TypeError(f"a callable of a fault returned {type(made).__name__}: a message, bytes or None")
    return answer_payload(frame, made.encode(frame.version))
