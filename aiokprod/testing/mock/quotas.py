"""Client quotas of one broker: how long the channel of a client that produced too much is muted (broker: 14).

One `ClientQuotas` per broker; the rates are the cluster's. Pure: time is an argument. Nothing is refused: the request
is carried out and answered at once, with the throttle, and the next request of that connection waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

SAMPLES: Final = 11
"""quota.window.num: samples that count, the one that is filled included."""

SAMPLE_S: Final = 1.0
"""quota.window.size.seconds"""


class ClientQuotas:
    """The bytes that each client id has produced at this broker."""

    __slots__ = ("_clients", "_rates")

    def __init__(self, rates: Mapping[str, float]) -> None:
        self._rates = rates
        self._clients: dict[str, deque[_Sample]] = {}

    def __repr__(self) -> str:
        return f"<ClientQuotas rates={dict(self._rates)} clients={len(self._clients)}>"

    def charge(self, client_id: str | None, size_bytes: int, now_s: float) -> int:
        """Count a Produce request of this size; returns the throttle in milliseconds, 0 within the quota."""
        rate = self._rates.get(client_id or "")
        if rate is None:
            return 0
        samples = self._clients.setdefault(client_id or "", deque())
        if not samples or now_s - samples[-1].since_s >= SAMPLE_S:
            samples.append(_Sample(now_s))
        samples[-1].size_bytes += size_bytes
        while now_s - samples[0].since_s >= SAMPLES * SAMPLE_S:
            samples.popleft()
        # The window is at least ten samples long, so ten seconds' worth pass at once. broker: 14.1
        elapsed_s = now_s - samples[0].since_s
        missing = max(0, SAMPLES - 1 - int(elapsed_s / SAMPLE_S))
        window_s = elapsed_s + missing * SAMPLE_S
        excess_s = sum(sample.size_bytes for sample in samples) / rate - window_s
        return max(0, round(excess_s * 1000))


class _Sample:
    __slots__ = ("since_s", "size_bytes")

    def __init__(self, since_s: float) -> None:
        self.since_s = since_s
        self.size_bytes = 0
