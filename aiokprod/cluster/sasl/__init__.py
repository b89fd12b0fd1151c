"""sasl."""
