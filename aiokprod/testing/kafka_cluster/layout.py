"""The ports that a cluster's nodes listen on, and the addresses that clients get. Pure, except for reserving ports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from aiokprod.testing.kafka_cluster.spec import CONTROLLER, INTERNAL, NodeSpec


def nodes_of(
    count: int,
    listeners: Sequence[str],
    *,
    proxied: Collection[str],
    ports: Sequence[int] | None,
    host: str,
    reserve: Callable[[], int],
) -> tuple[NodeSpec, ...]:
    """Return the nodes, from id 1 on.

    Args:
        listeners: the names of the clients' listeners.
        proxied: those with a proxy before them: what is advertised is the proxy's port.
        ports: the ports of the first listener, as clients see it; `reserve`d ones if not given.
        host: the name that metadata gives to clients.
    """
    nodes: list[NodeSpec] = []
    for index in range(count):
        bound = {name: reserve() for name in (CONTROLLER, INTERNAL, *listeners)}
        advertised = {name: reserve() if name in proxied else port for name, port in bound.items()}
        if ports is not None:
            advertised[listeners[0]] = ports[index]
            if listeners[0] not in proxied:
                bound[listeners[0]] = ports[index]
        nodes.append(NodeSpec(node_id=index + 1, bound=bound, advertised=advertised, host=host))
    return tuple(nodes)
