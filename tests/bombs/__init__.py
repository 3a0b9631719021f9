"""Files that ask for far more memory or time than their length explains.

A module makes those of a format; ``readers`` has the ways in which ExBurn opens it, and
the table of both, which ``tests/runtime/files/test_bounds.py`` goes through.
"""
