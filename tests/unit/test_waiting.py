"""The things that records wait for: the names that `aiokprod.explanation` gives to users are those that the pipeline notes."""

from __future__ import annotations

import pickle

import pytest

from aiokprod import explanation, waiting


def test_an_explanation_has_the_names_that_the_pipeline_notes() -> None:
    assert explanation.WaitsFor is waiting.WaitsFor
    assert explanation.EventKind is waiting.EventKind
    assert pickle.loads(pickle.dumps(explanation.WaitsFor.ROOM)) is waiting.WaitsFor.ROOM


@pytest.mark.parametrize(
    ("size_bytes", "text"), [(0, "0.0 KiB"), (1536, "1.5 KiB"), (1 << 20, "1.0 MiB"), (33_554_432, "32.0 MiB")]
)
def test_sizes_are_readable(size_bytes: int, text: str) -> None:
    assert waiting.readable(size_bytes) == text
