"""aiokafka's producer on aiokprod: the same class to call, for services and frameworks that are written for aiokafka.

    from aiokprod.compat.aiokafka import AIOKafkaProducer       # in the place of: from aiokafka import AIOKafkaProducer

Or for a framework that makes its producer itself, before the framework is imported:

    import aiokprod.compat.aiokafka

    aiokprod.compat.aiokafka.install()

docs/how-to/aiokafka_drop_in.md says what is stronger, what differs, and what cannot be. Needs the extra `aiokafka`: errors,
metadata and the consumer stay aiokafka's own.
"""

from __future__ import annotations

from aiokprod.compat.aiokafka.installing import install, uninstall
from aiokprod.compat.aiokafka.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer", "install", "uninstall"]
