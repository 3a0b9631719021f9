"""The contract of a loss: shapes, targets, masks and reductions."""
