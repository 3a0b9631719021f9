"""Names, arguments and values that a later version will not have."""

from __future__ import annotations

from exburn.errors import warn

__all__ = ["deprecate"]


def deprecate(name: str, instead: str, *, since: str, until: str) -> None:
    """Warns, where an old thing is used, of when it goes and what to use instead.

    It is called by what is old: a function, a class' ``__init__``, an argument's check.
    The release script reads all calls, whose arguments are literals, and makes no
    release with something whose day has come.

    Args:
        name: The old thing, ``"Model.fit(validation_freq=)"``.
        instead: What does the same, ``"callbacks.Every"``.
        since: The first version that warned, ``"0.2.0"``.
        until: A day, ``"2027-06-01"``: releases from then on may leave it out.
    """
    warn(
        f"{name} is deprecated since {since} and goes on {until}: use {instead}",
        DeprecationWarning,
    )
