"""From `send` to the open batch of a partition: checks, room, the choice of the partition, and what waits on that way.

Here live the send path with its checks, the admission gate, the parking of records that cannot go on yet, the dispatcher of
each topic with its partitioners, serializers that must be awaited, and the timeouts of single sends. No brokers.
"""
