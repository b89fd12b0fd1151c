"""`PipelineContext`: what every stage of one pipeline shares. Made once, read only.

It holds values and services that know no stage. A stage that needs another stage receives it as an argument when it is made.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from aiokprod.cluster.owned_tasks import OwnedTasks
from aiokprod.config import ProducerConfig
from aiokprod.interceptor_chain import InterceptorChain
from aiokprod.logs import StateLog
from aiokprod.metrics import Metrics
from aiokprod.pipeline.delivery.delivery_reports import DeliveryReports
from aiokprod.pipeline.effects import Effects
from aiokprod.pipeline.partition.data_losses import DataLosses
from aiokprod.pipeline.partition.defects import Defects
from aiokprod.pipeline.partition.failing import FailingBatches
from aiokprod.pipeline.partition.flushes import Flushes
from aiokprod.pipeline.partition.settings import PipelineSettings

if TYPE_CHECKING:  # loaded if an interceptor follows batches
    from aiokprod.pipeline.partition.batch_hooks import BatchHooks


class PipelineContext:
    """Options, clock, metrics, log, and the four services that all stages use."""

    def __init__(
        self,
        config: ProducerConfig,
        settings: PipelineSettings,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        metrics: Metrics,
        log: StateLog,
        interceptors: InterceptorChain,
        effects: Effects,
        flushes: Flushes,
        tasks: OwnedTasks,
        reports: DeliveryReports,
    ) -> None:
        self.config = config
        self.settings = settings
        self.loop = loop
        self.random = random
        self.metrics = metrics
        self.log = log
        self.interceptors = interceptors
        self.batch_hooks: BatchHooks | None = None
        if interceptors.sees_batches:
            from aiokprod.pipeline.partition.batch_hooks import BatchHooks

            self.batch_hooks = BatchHooks(loop, interceptors)
        self.effects = effects  # what state changes lead to
        self.flushes = flushes  # which flush waits for what
        self.tasks = tasks  # a task that crashes fails the producer
        self.reports = reports  # outcomes, told to the application
        self.defects = Defects(metrics, log)  # of what only observes: they fail nothing
        self.failing = FailingBatches()  # attempts that fail, told in the log
        self.losses = DataLosses(metrics, log, interceptors)  # of acknowledged records
