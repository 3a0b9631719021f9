"""OpenAI's routes for texts, over models that write them: ``/v1/…``.

A request's way: ``requests`` (its entries, each honoured or refused by name) →
``TextStream`` → ``answers`` (the objects that clients read) → ``routes``.
"""
