"""Records of changes to a model, which files hold and a fresh model repeats."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from exburn.errors import FileFormatError


@contextlib.contextmanager
def reading_record(what: str) -> Iterator[None]:
    """Within the block a record is read, perhaps one of another model or a hostile one.

    Example:
        >>> try:
        ...     with reading_record("the pruning"):
        ...         {}["weights"]
        ... except FileFormatError as error:
        ...     print(error.reason)
        the record of the pruning does not fit the model
    """
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(
            "from_config",
            f"the record of {what} does not fit the model",
            {"cause": error},
        ) from error
