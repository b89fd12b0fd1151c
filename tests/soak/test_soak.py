"""The test of the test: producers whose options break the promise are reported bad, by the whole machinery."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan import Injection, Plan, Round
from run import Soak

pytestmark = [pytest.mark.real, pytest.mark.slow]


class InTurn(Plan):
    """A plan of these kinds in turn, on every broker, with frequent hits."""

    def __init__(self, *kinds: str) -> None:
        self._kinds = kinds
        self._count = 0

    def next_round(self, share_done: float) -> Round:
        kind = self._kinds[self._count % len(self._kinds)]
        self._count += 1
        injection = Injection(kind=kind, node=1, client=0, seconds=2.0, chance=0.2, seed=self._count)
        return Round(gap_s=0.2, injections=(injection,))


def test_a_producer_that_tells_before_the_broker_has_and_one_that_does_not_number_its_batches_are_found_out(
    tmp_path: Path,
) -> None:
    early = {"acks": 0, "enable_idempotence": False}
    unnumbered = {"acks": 1, "enable_idempotence": False}
    soak = Soak(
        minutes=0.15,
        seed=1,
        profiles=("five", "one", "mixed", "churn"),
        options={
            "five": early,
            "one": unnumbered,
            "mixed": early,
            **{name: {"plant": "commits"} for name in ("copy-a", "copy-b")},
        },
        plan=InTurn("cut requests", "cut answers"),
    )
    evidence, verdict = soak.run(tmp_path / "books")
    lost = [each.text for each in verdict.complaints if each.check == "lost"]
    twice = [each.text for each in verdict.complaints if each.check == "duplicate"]
    for early_one in ("five-0:", "mixed-0:"):
        assert any(early_one in text for text in lost), verdict.counts()
    assert all("five-0:" in text or "mixed-0:" in text for text in lost), verdict.counts()
    assert twice and all("one-0:" in text for text in twice), verdict.counts()
    # Copiers whose offsets are committed apart from their transactions pass over what they abort.
    copies = [each.check for each in verdict.complaints if each.check.startswith("copy ")]
    assert set(copies) == {"copy lost"}, verdict.counts()
    of_churn = [each for each in verdict.complaints if "churn" in each.text and each.check != "stall"]  # no speed here
    assert not of_churn, "the third one keeps its promise"
    assert len(evidence.log) > 1000
    assert {"five-0.book", "one-0.log"} <= {path.name for path in (tmp_path / "books").iterdir()}
    batches = next((tmp_path / "books").glob("*.batches")).read_text()
    assert "producer -1 epoch -1 base-sequence -1" in batches
    dumps = [path.read_text() for path in (tmp_path / "books").glob("*.dump")]
    assert len(dumps) >= 3, "one of each replica"
    assert all("baseSequence: -1" in dump and "producerId: -1" in dump for dump in dumps)
