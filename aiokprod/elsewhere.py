"""Names that `aiokprod` itself does not have, with the place that has them: for the text of the error."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Final

MODULES: Final = ("aiokprod.errors", "aiokprod.serializers", "aiokprod.hooks", "aiokprod.explanation")
"""Modules whose public names are looked up."""
PLACES: Final = {
    **dict.fromkeys(("KafkaCluster", "MemoryProducer", "MockCluster", "FaultProxy"), "aiokprod.testing"),
    **dict.fromkeys(("AIOKafkaProducer", "install"), "aiokprod.compat.aiokafka"),
    "kafka_lifespan": "aiokprod.integrations.fastapi",
    "Claims": "aiokprod.claims",
}
"""Names of modules that need an extra, or take long to import."""
OTHERS: Final = {
    **dict.fromkeys(("KafkaProducer", "AIOProducer"), "the producer is aiokprod.Producer"),
    **dict.fromkeys(
        ("Consumer", "AIOKafkaConsumer", "KafkaConsumer"),
        "aiokprod only produces; consume with aiokafka or confluent-kafka (docs/exactly_once.md)",
    ),
}
IMPORTING: Final = "importlib._bootstrap"


def advice_of(name: str) -> str:
    """Return what to write instead of this name of `aiokprod`; empty if nothing is known of it."""
    if name in OTHERS:
        return OTHERS[name]
    if name.startswith("_"):
        return ""
    found = PLACES.get(name) or next((each for each in MODULES if _has(each, name)), None)
    return f"write `from {found} import {name}`" if found else ""


def _has(module_name: str, name: str) -> bool:
    value = vars(import_module(module_name)).get(name)
    return getattr(value, "__module__", None) == module_name


def is_imported() -> bool:
    """Return True if `__getattr__` of the module, which asks, was called by an import of the name."""
    frame = inspect.currentframe()
    for _ in range(2):  # this function, and `__getattr__`
        frame = None if frame is None else frame.f_back
    return frame is not None and IMPORTING in frame.f_code.co_filename
