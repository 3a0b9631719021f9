"""The functions of the reference system."""
