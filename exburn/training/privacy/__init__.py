"""Training whose result says little of any single row: DP-SGD."""
