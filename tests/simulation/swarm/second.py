"""A producer whose loop has ended without close(), on a second loop."""

from __future__ import annotations

from aiokprod.errors import AiokprodError
from aiokprod.testing import MockCluster
from aiokprod.testing.virtual.run import LeftoverError, VirtualRun

from .scene import Life, Scene

LEAST_BLOCK_S = 1.0


def second_loop(scene: Scene) -> None:
    """Use each producer on another loop, with another cluster at the same addresses."""
    with VirtualRun(scene.world.seed + 1, shuffled=scene.world.shuffled) as virtual:

        async def scenario() -> None:
            loop = virtual.loop
            cluster = MockCluster(
                brokers=scene.world.cluster.get("brokers", 3),
                network=virtual.network,
                now_ms=lambda: int(1000 * loop.wall_s()),
            )
            async with cluster:
                cluster.create_topic("second")
                for life in scene.lives:
                    life.way.network = virtual.network
                    await _use(scene, life, cluster)

        virtual.wait_for(scenario())
        try:
            virtual.check()
        except LeftoverError as left:
            scene.books.wrong("left on the second loop", f"{left}")


async def _use(scene: Scene, life: Life, cluster: MockCluster) -> None:
    producer = life.producer
    if producer.config.value_serializer is not None or life.was_sabotaged:
        return
    steps = []
    try:
        steps.append("close")
        await producer.close(timeout=1.0)
        steps.append("start")
        await producer.start()
        steps.append("send")
        delivery = producer.send("second", b"x", partition=0)
        if producer.config.acks != 0:
            await delivery
    except AiokprodError as error:
        if life.block_s >= LEAST_BLOCK_S:  # else a topic whose leader is not known yet fails at once
            scene.books.wrong("dead after its loop", f"producer {life.index}: {' '.join(steps)} raised {error!r:.300}")
    finally:
        await producer.close(timeout=5.0)
    unsettled = [
        a for a in scene.books.accounts if a.delivery is not None and a.life[0] == life.index and not a.delivery.done()
    ]
    if unsettled:
        scene.books.wrong("never settled", f"{unsettled[0]} whose loop has ended")
