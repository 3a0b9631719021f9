"""Equal blocks in a row, found in a traced program and run as one loop.

``forms.py`` tells which equations compute the same, ``runs.py`` finds blocks that
repeat, ``scanning.py`` runs them as ``jax.lax.scan``, ``rematerializing.py`` has them
computed again for the gradient.
"""
