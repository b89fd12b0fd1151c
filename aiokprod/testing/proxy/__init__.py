"""A TCP proxy for tests that knows Kafka's frames and breaks what it is told to break: `FaultProxy`."""

from aiokprod.testing.proxy.rules import Action, ActiveRule, Direction, ProxyFrame, ProxyRule
from aiokprod.testing.proxy.server import FaultProxy

__all__ = ["FaultProxy", "ProxyRule", "ActiveRule", "Action", "Direction", "ProxyFrame"]
