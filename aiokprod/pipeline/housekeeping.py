"""What a pipeline does from time to time: keeps topics in use that have records, tells the partitioners what waits where."""

from __future__ import annotations

from collections.abc import Mapping, Set

from aiokprod.cluster.client import ClusterClient
from aiokprod.pipeline.dispatcher import TopicDispatcher
from aiokprod.pipeline.settings import PipelineSettings


def keep_house(
    topics: Mapping[str, TopicDispatcher],
    used: Set[str],
    client: ClusterClient,
    settings: PipelineSettings,
    now: float,
) -> None:
    """One round over all topics; `used` ones got records since the last. (KIP-794: what does not drain for its patience
    is left out.)"""
    patience_s = settings.availability_timeout_s
    stuck_since = now - settings.linger_s - patience_s
    for dispatcher in topics.values():
        waiting = [0] * dispatcher.count
        stuck: list[int] = []
        has_records = dispatcher.topic in used
        for number, queue in dispatcher.queues.items():
            oldest = queue.oldest_opened_at()
            if oldest is None:
                continue
            has_records = True
            if number < dispatcher.count:
                waiting[number] = queue.pending_bytes()
                if patience_s and oldest < stuck_since:
                    stuck.append(number)
        if has_records:
            client.topic(dispatcher.topic)  # else it would leave the metadata, and a new leader be missed
        if dispatcher.is_known:
            dispatcher.partitioner.update_load(waiting, stuck)
