"""The resolver of a soak's producers: the nemesis may change the address that it gives for a name.

One loop per workload process. The name stands for every broker, it is in their certificates, and no other resolver knows
it: a client that reaches a broker has asked here, and one that reaches it at its new address has asked again.
"""

from __future__ import annotations

import asyncio
from typing import Any

NAME = "kafka.soak.test"
ADDRESSES = ("127.0.0.1", "127.0.0.2")  # all of 127.0.0.0/8 is this machine (Linux)


class NamingLoop(asyncio.SelectorEventLoop):
    """The usual loop with a name more."""

    address = ADDRESSES[0]

    async def getaddrinfo(self, host: Any, port: Any, **rest: Any) -> Any:  # type: ignore[override]
        """Resolve our name to the set address, and any other as the system does."""
        return await super().getaddrinfo(self.address if host == NAME else host, port, **rest)
