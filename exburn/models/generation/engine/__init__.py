"""Many texts of one model at once, from a cache in pages.

``TextEngine`` (``engine.py``) takes a request (``requests.py``), checks it, and puts it
into a queue (``rows.py``). Its thread (``loop.py``) gives it a slot and pages
(``scheduler.py``, ``pages.py``), and calls two programs (``programs.py``): one reads
prompts piece by piece, one writes tokens of all texts (``choosing.py``: which), which
come to the texts by ``flights.py``. Layers find keys and values in the pages by
``cache.py``.
"""

from exburn.models.generation.engine.engine import EngineStatistics, TextEngine
from exburn.models.generation.engine.requests import TextAnswer, TextPart, TextRequest

__all__ = [
    "EngineStatistics",
    "TextAnswer",
    "TextEngine",
    "TextPart",
    "TextRequest",
]
