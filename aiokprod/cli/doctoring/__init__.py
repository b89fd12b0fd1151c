"""The examinations of `aiokprod doctor`, from the outside in: settings, servers, brokers, topics, a record."""
