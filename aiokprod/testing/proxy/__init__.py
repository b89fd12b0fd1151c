"""A TCP proxy for tests that knows Kafka's frames and breaks what it is told to break: `FaultProxy`."""

from aiokprod.testing.proxy.frames import Direction, ProxyFrame
from aiokprod.testing.proxy.road import Distance
from aiokprod.testing.proxy.server import FaultProxy

__all__ = ["FaultProxy", "Direction", "ProxyFrame", "Distance"]
