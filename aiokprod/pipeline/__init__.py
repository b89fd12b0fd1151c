"""The pipeline: what happens to a record between `send` and its outcome.

    send ──> sending/ ─────────────────> partition/ ──────────> broker/ ──> connection
              SendPath, RecordChecks      PartitionQueue         BrokerAggregator    │
              Parking, AdmissionGate      ProducerBatch          BrokerFlusher       │ answers
              TopicDispatcher             Ledger  <──────────────────────────────────┘
                                             ├──> RetryHandler (broker/): chasers, identities, leaders
              columns/ (send_columns)        └──> delivery/ ──> what awaits the record

`broker_backend` makes the stages; `pipeline` starts, flushes and closes them; `inspection` says how they are. Imports go
downward:

    pipeline, broker_backend > backend, inspection > columns > sending, broker > partition > delivery
        > effects, timer_queue, wall_clock

`sending` and `broker` do not know each other: `partition` is between them. What it calls above itself are small classes of
its own (`Room`, `Destination`, `Retries`), which the stages above implement.
"""
