"""A server for models, over HTTP, by the Open Inference Protocol.

A request's way: ``entrance`` (id, key, rate, record) → ``routes`` → ``inference``
(``body`` → ``protocol`` → ``Serving``), and back.
"""
