"""What a program minimizes and measures: losses, metrics, their totals."""
