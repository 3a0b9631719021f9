"""Random programs, run by ExBurn and by Keras; what differs must be known and decided.

``python -m tests.fuzz --draws 1000 --seed 7`` runs them, ``pytest -m nightly`` does so
every night. A kind of program (``ops``, ``losses`` …) is a module with

- ``draw(rng)``: a random specification, of plain values and those of ``values.py``;
- ``render(spec)``: the program, as source that leaves its ``result``;
- ``TOLERANCE``: how far two results may be apart.

``decided.toml`` holds the differences that are known, each with who is right.
"""
