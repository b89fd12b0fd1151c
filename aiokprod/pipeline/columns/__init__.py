"""`send_columns`: columns are cut into chunks, and each chunk becomes encoded batches of its partitions.

It enters beside `send`, through the same gate, the same dispatchers and the same partition queues. What needs numpy and
pyarrow is imported here when columns are sent.
"""
