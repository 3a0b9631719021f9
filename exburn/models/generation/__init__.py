"""Text from a model: prompts in, tokens out, by one compiled loop.

``generate`` reads the prompts (``prompts.py``), finds out once what the model allows
(``plan.py``), and starts a ``GenerationRun`` (``run.py``). That calls two programs: one
reads the prompts and chooses the first token of each, the other is the loop
(``loop.py``, ``beams.py``, or with a draft ``speculation.py``), whose state holds what
the model remembers (``memory.py``), and computes each row with its adapter
(``adapters.py``). Texts are put together and searched for stops on the host
(``pieces.py``). ``chat`` lays out chats in front of that (``chat.py``). ``scoring.py``
scores tokens that are there already.
"""

from exburn.models.generation.chat import chat
from exburn.models.generation.generate import (
    generate,
    generation_defaults,
    generation_plan,
    position_limit,
)

__all__ = [
    "chat",
    "generate",
    "generation_defaults",
    "generation_plan",
    "position_limit",
]
