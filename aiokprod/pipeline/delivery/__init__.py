"""The answer of a record to its sender: `Delivery`, its waiters, and the failures that nothing waits for.

The lowest wing: it knows neither batches nor brokers, only a `RecordHolder`, which it asks for the outcome.
"""
