"""The measured clients: each module has WAYS, a table from a way of sending to its function."""
