"""From ready partitions to one broker and back: requests, their answers, retries.

Here live `Brokers` (which broker leads a partition), `BrokerAggregator` (what is ready), `BrokerFlusher` (the window of
requests), `RetryHandler` (chasers, producer ids, new leaders) and the threads that compress large sections.
"""
