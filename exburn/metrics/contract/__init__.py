"""The contract of a metric."""
