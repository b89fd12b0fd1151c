"""Consume, transform, produce: each record that a consumer reads has its effect once (docs/exactly_once.md)."""
