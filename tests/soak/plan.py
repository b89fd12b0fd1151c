"""The plan of a soak: which faults, where, when, how long, drawn from a seed. Pure; the same seed gives the same plan.

First every kind alone, in a drawn order, over and over; then mixtures, of kinds drawn again for every few rounds.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

# What the nemesis can do, by the part that must not be hurt twice at once: a mixture takes at most one kind of each class.
BROKER = ("kill", "terminate", "freeze", "kill controller", "shrink isr")
MAJORITY = ("kill two", "kill all", "terminate two", "terminate all", "freeze two", "freeze all")
LEADERS = ("shuffle leaders", "elect preferred")
SETTINGS = ("quota", "swap certificate")
NETWORK = (
    "cut requests", "cut answers", "hold answer", "hold request", "half request", "half answer", "drip", "reset storm",
    "blackhole requests", "blackhole answers", "part one broker", "errors before append", "errors after append",
    "throttle", "far away", "change address",
)  # fmt: skip
CLIENT = ("freeze client", "block loop", "kill client")
TOPICS = ("grow topic", "make topic again")
REGULAR = ("new topic",)  # not drawn: one every minute, between two rounds
NEW_TOPIC_EVERY_S = 60.0
CLASS = {
    kind: name
    for name, kinds in (
        ("cluster", BROKER + MAJORITY + LEADERS + TOPICS + REGULAR),
        ("settings", SETTINGS),
        ("network", NETWORK),
        ("client", CLIENT),
    )
    for kind in kinds
}
SINGLES_SHARE = 0.65  # of the time
ROUNDS_PER_MIX = 3
KINDS_PER_MIX = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """The severity of a soak: the 5-minute form has short faults, one after another; the long form those of the catalogue."""

    gap_s: float  # mean time between two rounds
    down_s: tuple[float, float]
    frozen_s: tuple[float, float]
    network_s: tuple[float, float]
    client_s: tuple[float, float]
    kinds: tuple[str, ...]


SHORT = Form(
    gap_s=1.5,
    down_s=(0.5, 4.0),
    frozen_s=(1.0, 8.0),
    network_s=(2.0, 6.0),
    client_s=(1.0, 6.0),
    kinds=BROKER + LEADERS + SETTINGS + NETWORK + CLIENT + TOPICS,
)
LONG = Form(
    gap_s=10.0,
    down_s=(0.5, 30.0),
    frozen_s=(1.0, 45.0),
    network_s=(3.0, 30.0),
    client_s=(1.0, 45.0),
    kinds=BROKER + MAJORITY + LEADERS + SETTINGS + NETWORK + CLIENT + TOPICS,
)
LONG_FROM_MINUTES = 15.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Injection:
    """One thing the nemesis does: to which broker, to which client, for how long; `chance` is for what only some meet."""

    kind: str
    node: int
    client: int
    seconds: float
    chance: float
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """Faults injected together, `gap_s` after the round before has healed."""

    gap_s: float
    injections: tuple[Injection, ...]

    def __str__(self) -> str:
        return " + ".join(injection.kind for injection in self.injections)


def form_for(minutes: float) -> Form:
    """Return the form of a soak of this length."""
    return LONG if minutes >= LONG_FROM_MINUTES else SHORT


class Plan:
    """A source of rounds, drawn one after another."""

    def __init__(self, seed: int, form: Form, *, nodes: int = 3, clients: int = 5) -> None:
        self._draw = random.Random(seed)
        self._draw_regular = random.Random(
            f"{seed} regular"
        )  # when those come is the clock's affair, what comes is not
        self._form = form
        self._nodes = nodes
        self._clients = clients
        self._alone = self._each_kind()
        self._mix: list[str] = []
        self._mixed_rounds = 0

    def next_round(self, share_done: float) -> Round:
        """Draw the next round, given the share of the time that has passed."""
        gap_s = min(self._draw.expovariate(1 / self._form.gap_s), 3 * self._form.gap_s)
        if share_done < SINGLES_SHARE:
            kinds = [next(self._alone)]
        else:
            if self._mixed_rounds % ROUNDS_PER_MIX == 0:
                self._mix = self._draw.sample(self._form.kinds, min(KINDS_PER_MIX, len(self._form.kinds)))
            self._mixed_rounds += 1
            kinds = self._mixture(self._draw.choice((2, 2, 3)))
        return Round(gap_s=gap_s, injections=tuple(self._injection(kind, self._draw) for kind in kinds))

    def regular(self) -> Round:
        """Return the round that is played every `NEW_TOPIC_EVERY_S`, besides."""
        return Round(gap_s=0.0, injections=tuple(self._injection(kind, self._draw_regular) for kind in REGULAR))

    def _each_kind(self) -> Iterator[str]:
        while True:
            yield from self._draw.sample(self._form.kinds, len(self._form.kinds))

    def _mixture(self, count: int) -> list[str]:
        found: dict[str, str] = {}
        for kind in self._draw.sample(self._mix, len(self._mix)):
            found.setdefault(CLASS[kind], kind)
        return list(found.values())[:count]

    def _injection(self, kind: str, draw: random.Random) -> Injection:
        form = self._form
        if (kind.startswith("freeze") or kind == "shrink isr") and CLASS[kind] == "cluster":
            span = form.frozen_s
        elif CLASS[kind] == "cluster":
            span = form.down_s
        else:
            span = form.client_s if CLASS[kind] == "client" else form.network_s
        return Injection(
            kind=kind,
            node=draw.randrange(1, self._nodes + 1),
            client=draw.randrange(self._clients),
            seconds=round(draw.uniform(*span), 2),
            chance=round(draw.uniform(0.02, 0.2), 3),
            seed=draw.randrange(1 << 30),
        )


class Calm(Plan):
    """A plan without faults, to measure what the machine can do."""

    def __init__(self) -> None:
        super().__init__(0, SHORT)

    def next_round(self, share_done: float) -> Round:
        return Round(gap_s=1.0, injections=())

    def regular(self) -> Round:
        return Round(gap_s=0.0, injections=())
