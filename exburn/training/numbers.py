"""Numbers that change between steps, as arguments of the programs.

A program holds the numbers of layers, regularizers and losses as constants. One that
has changed is an argument from then on, so that the next change compiles nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.core.substitution import Substitution
from exburn.module.variable import Static
from exburn.training.fingerprint import SettingSlot

_PREFIX = "number: "  # of names among the other variables; no path begins so
_ARGUMENT = Static("an argument of the program")


def name_of(slot: SettingSlot) -> str:
    """The name of a number among a module's other variables."""
    return _PREFIX + slot.name


def is_number(name: str) -> bool:
    """Whether a name among the other variables is that of a number."""
    return name.startswith(_PREFIX)


class Number:
    """What a slot holds, in the form of a variable."""

    def __init__(self, slot: SettingSlot):
        self.slot = slot
        self._told: Any = None  # the number that the array was made of
        self._array: Any = None

    def get_raw_value(self) -> jax.Array:
        """The number as an array, the same one until it changes.

        Its type is weak, as a number's is in JAX: it takes part in any precision.
        """
        number = self.slot.read()
        if self._array is None or number is not self._told:
            self._told, self._array = number, as_array(number)
        return self._array

    def set_raw_value(self, value: Any, **_: Any) -> None:
        """Keeps the array that a program has returned: it changes no number."""
        self._array = value

    def get_metadata(self) -> dict[str, Any]:
        return {}


def as_array(number: Any) -> jax.Array:
    """A number as an array without axes; several, as an interval has, with one.

    Example:
        >>> as_array(1).weak_type, as_array((0.0, 0.5)).shape
        (True, (2,))
    """
    if isinstance(number, tuple | list):
        return jnp.stack([jnp.asarray(float(value)) for value in number])
    return jnp.asarray(float(number))


@contextlib.contextmanager
def holding(numbers: Mapping[str, Number], arrays: Mapping[str, Any]) -> Iterator[None]:
    """In the block, while a program is traced, the slots hold the program's arguments.

    Args:
        arrays: The values, by name; numbers that have none stay as they are.
    """
    before = [(n.slot, n.slot.read()) for name, n in numbers.items() if name in arrays]
    try:
        for name, number in numbers.items():
            if name in arrays:
                number.slot.write(arrays[name])
        yield
    finally:
        for slot, value in before:
            slot.write(value)


def as_arguments(numbers: Mapping[str, Number]) -> AbstractContextManager[None]:
    """In the block the slots hold something that stays, whatever their numbers are."""
    return holding(numbers, dict.fromkeys(numbers, _ARGUMENT))


def give(
    numbers: Mapping[str, Number], arrays: Mapping[str, Any], scope: Substitution
) -> None:
    """Gives the attributes of a module's copy the numbers of a program."""
    for name, number in numbers.items():
        slot, copied = number.slot, scope.find(number.slot.holder)
        if isinstance(copied, nnx.Module):
            vars(copied)[slot.key] = arrays[name] if name in arrays else slot.read()
