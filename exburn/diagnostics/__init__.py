"""Looks at a machine, a model's speed and its gradients; nothing is trained."""
