"""A producer for programs without asyncio: scripts, Django, Flask, Celery. Its calls wait; its loop has a thread of its own.

    from aiokprod.blocking import Producer

    with Producer("localhost:9092") as producer:
        metadata = producer.send("orders", b"value", key=b"key")

It is `aiokprod.Producer` inside, with the same options, promises and errors; transactions are left out.
"""

from aiokprod.blocking.producer import Producer

__all__ = ["Producer"]
