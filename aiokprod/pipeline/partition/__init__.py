"""The records of one partition: their queue, their batches, and the ledger that keeps order and exactly-once delivery.

Here live `PartitionQueue`, `Ledger` with the meaning of error codes, `ProducerBatch` and what refers to it (columns, parked
records, `send_many`), and the ports, by which the stages before the queue see it. No sockets.
"""
