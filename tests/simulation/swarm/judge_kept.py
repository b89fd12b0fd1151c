"""The check of what a producer still holds when there is nothing left to do: settled Deliveries, unknown topics."""

from __future__ import annotations

import gc
import sys

from aiokprod.pipeline.sending.send_timeouts import KEPT

from .scene import Life, Scene

MOST_KEPT = KEPT + 20  # the send timeouts do not look at so few
MOST_TOPICS = 10
IDLE_S = 12.0  # longer than metadata_max_idle_ms of worlds with tenants, and a round of housekeeping


def judge_kept(scene: Scene) -> None:
    """Judge what is kept in memory, before the producers are closed."""
    steps = scene.world.operations
    if any(step.args.get("timeout_step") or step.args.get("watch") == "poll" for step in steps):
        _judge_deliveries(scene)
    for life in scene.lives:
        _judge_topics(scene, life)


def _judge_deliveries(scene: Scene) -> None:
    gc.collect()
    kept = []
    for account in scene.books.accounts:
        at = account.settled_at()
        if account.delivery is not None and at is not None and at < scene.now() - 1.0 and not account.is_gathered:
            if sys.getrefcount(account.delivery) > 2:  # the account, and the call itself
                kept.append(account)
    if len(kept) > MOST_KEPT * len(scene.lives):
        scene.books.wrong("settled deliveries are kept", f"{len(kept)}, such as {kept[0]}")


def _judge_topics(scene: Scene, life: Life) -> None:
    pipeline = life.producer._pipeline
    is_made_when_asked = scene.world.cluster.get("auto_create_topics") and scene.world.options.get(
        "allow_auto_create_topics", True
    )
    if pipeline is None or is_made_when_asked:  # those are there, and are kept
        return
    since = max((a.settled_at() or scene.now() for a in scene.books.accounts if a.via == "tenant"), default=None)
    if since is None or scene.now() < since + IDLE_S:
        return
    # One that is there, made for the records, keeps its queues and with them its sequence numbers.
    topics = pipeline.parking.topics.items()
    idle = [name for name, it in topics if name.startswith("tenant") and it.snapshot is None and not it.queues]
    if len(idle) > MOST_TOPICS:
        text = f"{len(idle)} topics that do not exist are kept {scene.now() - since:.1f} s after their last record"
        scene.books.wrong("topics are kept", text)
