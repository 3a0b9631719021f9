"""The contract of an optimizer, and what its updates are made of."""
