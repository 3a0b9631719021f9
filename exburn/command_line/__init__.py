"""The command ``exburn``: one module for each of its commands, and ``main``."""
