"""The dashboard of a training, in a terminal or a notebook.

``state.py`` holds what is shown, ``frame.py`` makes text of it, ``screen.py`` has the
terminal, ``figure.py`` is the picture of a notebook, and ``callback.py`` brings them
together.
"""

from __future__ import annotations

from exburn.callbacks.dashboard.callback import Dashboard

__all__ = ["Dashboard"]
