"""The parts of exactly-once writes of the Spark sink: a two-phase commit by the driver (docs/spark_exactly_once.md).

    settings    the options; pure
    protocol    the decisions, from facts alone; pure
    procedures  the order of the driver's requests; pure
    facts       facts as texts of committed offsets, and names; pure
    requests    the requests, carried out on a cluster
    errors      what users are told

`exactly_once_driver.py` and `exactly_once_task.py`, above, are what Spark calls.
"""
