"""A TCP proxy for tests that knows Kafka's frames and injects scripted faults: `FaultProxy`."""

from aiokprod.testing.proxy.frames import Direction, ProxyFrame
from aiokprod.testing.proxy.link_conditions import Distance
from aiokprod.testing.proxy.server import FaultProxy

__all__ = ["FaultProxy", "Direction", "ProxyFrame", "Distance"]
