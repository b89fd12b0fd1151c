"""A producer inside other frameworks: those of the web, which run it, and those that trace and measure it.

One module per framework, named after it; those of the web are thin over `running`: the producer is started before the
application's own startup and closed after its own shutdown. A framework is imported only with its module. Litestar needs
no module: docs/frameworks.md has a recipe. `schema_registry` has serializers for Avro, JSON Schema and Protobuf.
"""
