"""Builds a module for data, and splits it into a graph and arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from exburn.module.building import build_for, materialize
from exburn.module.layer import Layer
from exburn.module.reached import Discovery
from exburn.module.selection import frozen_paths, train_only
from exburn.module.traversal import iter_modules, iter_weights
from exburn.module.variable import Weight
from exburn.training.fingerprint import Change, Fingerprint, SettingSlot
from exburn.training.module import SplitModule
from exburn.training.numbers import Number, name_of
from exburn.training.state_holder import StateHolder


class Splitter:
    """Builds a module, splits it, and makes arguments of the numbers that change.

    Attributes:
        numbers: The numbers that are arguments of the programs, by name.
        unproven: Names of those with which no step was traced yet.
        trained: Names of the trained parameters, and paths of the frozen layers.
        fingerprint: The module and its losses, as programs were last prepared for.
    """

    def __init__(self, holder: StateHolder):
        self._holder = holder
        self.numbers: dict[str, Number] = {}
        self.unproven: set[str] = set()
        self.trained: tuple[list[str], list[str]] = [], []
        self.fingerprint: Fingerprint | None = None
        self._constants: set[tuple] = set()  # places of numbers that cannot be
        self._beside: dict[str, Weight] = {}  # weights of others that losses read
        self._modules: list[Any] = []
        self._weights: list[Any] = []
        self._switches: list[Any] = []

    # ------------------------------------------------------------------ the module
    def build(self, x: Any, own: bool) -> None:
        """Gives the module its weights, for any number of rows.

        Args:
            own: Whether a step of its own runs.
        """
        module = self._holder.module
        if not isinstance(module, Layer):
            return
        if not module.built and own and not module.callable:
            module.built = True  # its parts are called by its own step alone
        elif not module.built:
            build_for(module, x)
        materialize(module, self._holder.seed)

    def split(self) -> bool:
        """Splits the module; returns whether the split is another one than before."""
        holder = self._holder
        changes = [] if self.fingerprint is None else self.fingerprint.changes()
        self.take_slots([change.slot for change in changes if change.is_number])
        built_in = self._built_in(changes)
        old, new = (
            holder.current_split,
            SplitModule(holder.module, self._beside, self.numbers),
        )
        self._modules = [module for _, module in iter_modules(holder.module)]
        self._weights = [weight for _, weight, _ in iter_weights(holder.module)]
        if (
            old is not None
            and not built_in
            and old.numbers.keys() == new.numbers.keys()
            and old.params == new.params
            and old.frozen == new.frozen
            and old.graphdef == new.graphdef
            and old.holds_those_of(new)
        ):
            return False
        holder.current_split = new
        self.trained, self._switches = self._read_trained(), self._read_switches()
        return True

    def hold(self, discoveries: Sequence[Discovery], x: Any) -> bool:
        """Has the module hold what a pass has reached; returns whether it had to."""
        if not any(discovery.met or discovery.noted for discovery in discoveries):
            return False
        if any([discovery.settle() for discovery in discoveries]):
            build_for(self._holder.module, x, training=True)
            materialize(self._holder.module, self._holder.seed)
        return True

    def take_beside(self, weights: Mapping[str, Weight]) -> None:
        """Adds weights of others, which losses and metrics read, from now on."""
        self._beside |= weights

    def leave_beside(self) -> None:
        """Forgets the weights of others: there are other losses and metrics."""
        self._beside = {}

    # ------------------------------------------------------------------ numbers
    def take_slots(self, slots: Iterable[SettingSlot]) -> bool:
        """Makes arguments of the numbers in slots; returns whether any was none.

        Those with which no step can be traced become constants again: see
        ``drop_unproven``.
        """
        places = self._constants | {n.slot.place for n in self.numbers.values()}
        new = [slot for slot in slots if slot.place not in places]
        for slot in new:
            name, further = name_of(slot), 1
            while name in self.numbers:
                name, further = f"{name_of(slot)} ({further})", further + 1
            self.numbers[name] = Number(slot)
            self.unproven.add(name)
        return bool(new)

    def drop_unproven(self) -> bool:
        """Makes constants of new arguments again; returns whether there were any."""
        for name in self.unproven:
            self._constants.add(self.numbers.pop(name).slot.place)
        dropped, self.unproven = bool(self.unproven), set()
        return dropped

    # ------------------------------------------------------------------ changes
    def accept(self, losses: Mapping[str, Any]) -> Fingerprint:
        """Takes the module, and what its losses hold, as they are now."""
        self.fingerprint = Fingerprint(self._holder.module, losses)
        return self.fingerprint

    def has_new_constants(self) -> bool:
        """Whether settings have changed that are no arguments of the programs."""
        fingerprint = self.fingerprint
        assert fingerprint is not None
        if fingerprint.holds(self._holder.module):
            return False
        changes = fingerprint.changes()
        if self._built_in(changes):
            return True
        fingerprint.accept(changes)
        return False

    def has_other_parameters(self) -> bool:
        """Whether other layers or weights are to be trained than at the last split."""
        switches = self._read_switches()
        if switches == self._switches:  # the names take a while to gather
            return False
        self._switches = switches
        return self._read_trained() != self.trained

    def train_only(self, names: set[str]) -> bool:
        """Has the module train these parameters; returns whether it trained others."""
        module = self._holder.module
        if set(self._holder.split.params) == names or not isinstance(module, Layer):
            return False
        return train_only(module, names)

    def _built_in(self, changes: Iterable[Change]) -> bool:
        """Whether programs have any of these settings built in."""
        arguments = {number.slot.place for number in self.numbers.values()}
        return any(change.slot.place not in arguments for change in changes)

    def _read_switches(self) -> list[Any]:
        """What says of each layer and weight whether it is to be trained."""
        layers = [getattr(module, "_trainable", True) for module in self._modules]
        frozen = [weight.get_metadata().get("frozen") for weight in self._weights]
        return layers + frozen

    def _read_trained(self) -> tuple[list[str], list[str]]:
        module = self._holder.module
        names = [path for path, _, learns in iter_weights(module) if learns]
        return names, frozen_paths(module) if isinstance(module, Layer) else []
