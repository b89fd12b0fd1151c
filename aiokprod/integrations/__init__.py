"""A producer inside a web framework: started before the application's own startup, closed after its own shutdown.

One module per framework, named after it, thin over `running`. A framework is imported only with its module. Litestar needs
no module: docs/frameworks.md has a recipe.
"""
