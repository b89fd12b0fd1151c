"""`install`: aiokprod's producer in the modules of aiokafka, for frameworks that make their producer themselves."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

from aiokprod.compat.aiokafka.producer import AIOKafkaProducer
from aiokprod.compat.aiokafka.theirs import PLACES, RealProducer

NAME = "AIOKafkaProducer"


def install() -> None:
    """Put `AIOKafkaProducer` of this package in the place of aiokafka's, in aiokafka's own modules.

    Call it first, before frameworks are imported: a module that has run `from aiokafka import AIOKafkaProducer` keeps
    aiokafka's. That is a `RuntimeWarning` that names these modules. Called again, it does nothing but look again.
    """
    for place in PLACES:
        setattr(import_module(place), NAME, AIOKafkaProducer)
    late = modules_with_theirs()
    if late:
        warnings.warn(
            f"install() came too late for {', '.join(late)}: imported before, with aiokafka's own producer; call"
            " aiokprod.compat.aiokafka.install() first",
            RuntimeWarning,
            stacklevel=2,
        )
    wrapped = [name for name in ("send", "send_and_wait") if hasattr(vars(RealProducer).get(name), "__wrapped__")]
    if wrapped:
        warnings.warn(
            f"install() came too late: AIOKafkaProducer.{wrapped[0]} of aiokafka has been instrumented; call install()"
            " before the instrumentation",
            RuntimeWarning,
            stacklevel=2,
        )


def uninstall() -> None:
    """Put aiokafka's own producer back; producers that were made meanwhile stay as they are."""
    for place in PLACES:
        setattr(import_module(place), NAME, RealProducer)


def modules_with_theirs() -> list[str]:
    """Return the names of the modules that have taken aiokafka's own producer."""
    found: list[str] = []
    for name, module in list(sys.modules.items()):
        if name in PLACES or name.startswith(f"{__package__}."):
            continue
        values = list(getattr(module, "__dict__", {}).values())
        if any(value is RealProducer for value in values):
            found.append(name)
    return sorted(found)
