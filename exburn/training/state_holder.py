"""Where the arrays of a module in training are, and whom they are shown to."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np

from exburn.callbacks.contract import CallbackList
from exburn.core import random_keys
from exburn.errors import BusyError
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules, iter_weights
from exburn.optimizers import LossScaleOptimizer
from exburn.runtime.donation import is_consumed, own_leaves
from exburn.runtime.sharding.arrays import checksum
from exburn.runtime.sharding.liveness import is_broken
from exburn.runtime.sharding.strategies import Distribution
from exburn.training.module import Arrays, SplitModule
from exburn.training.overrides import overrides
from exburn.training.placement import OneDevice, placement_for, to_one_device
from exburn.training.state import TrainState, seed_data


class StateHolder:
    """The arrays of a module and its optimizer, wherever they are.

    Between runs the module holds its own. During a run they are in a ``TrainState``
    that programs consume and replace, and the module gets them for the time of a hook.

    Attributes:
        running: The state of the run under way as its programs left it, or ``None``.
        opt_state: The optimizer's state between runs.
        step: Batches done since ``compile``, between runs.
        epochs: Epochs begun since then.
        shown: Averaged parameters that the module shows instead of its own.
        hooked: Whether a hook that may change settings has run since this was set.
        changed_in_fit: Settings that hooks have changed, by their names in a
            ``Provenance``: before the first fit, and after the last one.
    """

    def __init__(
        self, module: Any, optimizer: Any, seed: int | None, auto_scale_loss: bool
    ):
        self.module, self.optimizer = module, optimizer
        self.given_seed, self.auto_scale_loss = seed, auto_scale_loss
        self.placement = OneDevice()
        self.running: TrainState | None = None
        self.opt_state: Any = None
        self._slots_of: list[str] | None = None  # parameters, if that is known
        self._was_read = False  # whether others may hold arrays of it
        self.step = self.epochs = 0
        self.shown: Arrays | None = None
        self.own_params: Arrays | None = None  # meanwhile, between runs
        self.current_split: SplitModule | None = None
        self.run_split: SplitModule | None = None  # that the state is of, in a run
        self.run_revision = 0  # of the optimizer, when the last run began
        self.hooked = False
        self.changed_in_fit: dict[str, tuple[str | None, str | None]] = {}
        self._place: tuple[tuple[int, int], tuple] | None = None  # see take_place
        self._checked: tuple | None = None  # placement, split and rules that fit
        self._new_options, self._new_weights = False, {}  # of hooks: see pop_…
        self._training = threading.Lock()
        self._lent_to: int | None = None  # the thread whose hook may use the module
        self._runner: int | None = None  # the one that trains it, or did so last
        self._told: CallbackList | None = None
        if optimizer is not None:
            optimizer.bind(self.current_opt_state, self._set_opt_state)
            self.scale_loss()

    @property
    def seed(self) -> int:
        return random_keys.global_seed() if self.given_seed is None else self.given_seed

    def reseed(self, seed: int) -> None:
        """Goes on with the seed of another run."""
        self.given_seed = seed

    def epochs_before(self, first: int) -> int:
        """Epochs of earlier runs, whose orders one that begins at ``first`` leaves out.

        A loop of short runs sees the orders of a long one, and so does a run that goes
        on with the numbers of the one before.
        """
        return max(self.epochs - first, 0)

    @property
    def split(self) -> SplitModule:
        """The module, split; there is one once it is prepared."""
        assert self.current_split is not None
        return self.current_split

    @property
    def state(self) -> TrainState | None:
        """The state of the run under way, or ``None``: each parameter by itself."""
        if self.running is not None and self.running.stacks is not None:
            self.running = self.running.stacks.unpack(self.running)
        return self.running

    @state.setter
    def state(self, state: TrainState | None) -> None:
        self.running = state

    # ------------------------------------------------------------------ one at a time
    @contextlib.contextmanager
    def training(self, op: str) -> Iterator[None]:
        """In the block, programs may consume the module's arrays."""
        if not self._training.acquire(blocking=False):
            raise _busy(op)
        self._runner = threading.get_ident()
        try:
            yield
        finally:
            self._training.release()

    def check_free(self, op: str, *, train: bool = False) -> None:
        """Raises if the module's arrays cannot be used now.

        Args:
            train: Whether it is one that consumes them. Others may run in hooks.
        """
        lent = self._lent_to == threading.get_ident()
        if self._training.locked() if train else self.running is not None and not lent:
            raise _busy(op)

    # ------------------------------------------------------------------ optimizer
    def current_opt_state(self) -> Any:
        """The optimizer's state, of the run under way if there is one."""
        self._was_read = True
        return self.opt_state if self.state is None else self.state.opt_state

    def _set_opt_state(self, value: Any) -> None:
        if self.state is None:
            self.opt_state = value
        elif self._runner != threading.get_ident():  # the run may consume it meanwhile
            raise _busy("optimizer")
        else:
            self._new_options = True
            self.set_options(value)

    def set_options(self, opt_state: Any) -> None:
        """Goes on with another state of the optimizer, in a run."""
        assert self.state is not None
        self.state = self.placement.state(self.state.replace(opt_state=opt_state))

    def pop_new_options(self) -> bool:
        """Whether a hook has set options of the optimizer since this was last asked."""
        new, self._new_options = self._new_options, False
        return new

    def pop_new_weights(self) -> dict[str, int]:
        """Weights that hooks have set since this was last asked, with checksums."""
        new, self._new_weights = self._new_weights, {}
        return {name: checksum(array) for name, array in new.items()}

    def scale_loss(self) -> bool:
        """Puts a LossScaleOptimizer around that of a module that needs one.

        A model's own step must scale its loss itself, so it gets none by itself.
        """
        optimizer = self.optimizer
        if optimizer is None or optimizer.scales_loss or not self.auto_scale_loss:
            return False
        if overrides(self.module, "train_step"):
            return False
        if not any(
            isinstance(module, Layer) and module.compute_dtype == "float16"
            for _, module in iter_modules(self.module)
        ):
            return False
        self.optimizer = LossScaleOptimizer(optimizer)
        if self.opt_state is not None:
            self.opt_state = self.optimizer.around(self.opt_state)
        self.optimizer.bind(self.current_opt_state, self._set_opt_state)
        return True

    def take_over(self, other: StateHolder) -> None:
        """Goes on with the optimizer's state of another one, if they share it."""
        self.changed_in_fit = {
            name: texts
            for name, texts in other.changed_in_fit.items()
            if name.startswith("model")
        }
        mine, others = (
            getattr(live.optimizer, "inner_optimizer", live.optimizer)
            for live in (self, other)
        )
        if mine is others:
            self.opt_state, self._was_read = other.opt_state, other._was_read

    def count_on(self, other: StateHolder) -> None:
        """Counts batches and epochs on from those of another one."""
        self.step, self.epochs = other.step, other.epochs

    def refit_state(self) -> None:
        """Fits the optimizer's state to other options."""
        if self.opt_state is not None and self.current_split is not None:
            self.opt_state = self.refit(self.opt_state, self.split.read()[0])

    def follow_parameters(self) -> None:
        """Fits the optimizer's state to what is trained from now on, if that changed.

        Parameters that stay keep their slots. What only predicts need not call this:
        layers that are frozen for the time of it keep theirs, too.
        """
        if self._slots_of != self.split.params:
            self.refit_state()
            self._slots_of = self.split.params

    def trained_weights(self) -> Arrays:
        """The module's weights that are to be trained, by path."""
        weights = iter_weights(self.module)
        return {path: w.get_raw_value() for path, w, learns in weights if learns}

    def fit_to_weights(self) -> None:
        """Fits the optimizer's state to the weights that are to be trained now."""
        if self.opt_state is not None:
            self.opt_state = self.refit(self.opt_state, self.trained_weights())

    def refit(self, opt_state: Any, params: Arrays) -> Any:
        """The optimizer's state for parameters: fresh, but for slots that it has."""
        if self.optimizer.fits(opt_state, params):
            return opt_state
        fresh = self.placement.init(self.optimizer.init, params)
        return self.optimizer.refit(opt_state, fresh, params)

    # ------------------------------------------------------------------ arrays
    @property
    def arrays(self) -> tuple[Arrays, Arrays, Arrays]:
        """Parameters, frozen ones and others, of a prepared module or a run under way.

        For their shapes: those of a run may be consumed.
        """
        return self.split.peek() if self.state is None else self.live_arrays()

    def live_arrays(self) -> tuple[Arrays, Arrays, Arrays]:
        """What the module shows: the state's arrays, or averaged parameters."""
        state = self.state
        assert state is not None
        params = state.params if self.shown is None else self.shown
        return params, state.frozen, state.others

    def held_bytes(self, kind: str, device: Any = None) -> int:
        """Bytes of what is on the device already and a program would work on.

        Args:
            device: One of a mesh; ``None`` where there is but one.
        """
        trees: list[Any] = [self.arrays]
        if kind == "train":
            trees.append(self.current_opt_state())
        leaves = jax.tree.leaves(trees)
        if device is None:
            return sum(getattr(leaf, "nbytes", 0) for leaf in leaves)  # not of specs
        shards = [s for v in leaves for s in getattr(v, "addressable_shards", ())]
        return sum(s.data.nbytes for s in shards if s.device == device)

    def restore(self, state: TrainState) -> None:
        """Goes on from another state of the run under way."""
        self.state = state

    def own(self, state: TrainState) -> TrainState:
        """A state that programs may consume: of arrays that nobody else holds.

        Where somebody does, module and state get copies.
        """
        self.split.own(state.params, state.frozen, state.others)
        if not self._was_read:
            return state
        self.opt_state = state.opt_state  # not an earlier one, which shares arrays
        self.opt_state, self._was_read = own_leaves(self.opt_state), False
        return state.replace(opt_state=self.opt_state)

    def adopt(self, state: TrainState, step: int | None = None) -> None:
        """Gives the module and the optimizer the arrays of a state.

        Args:
            step: Its batches done; read from the device if ``None``, unless a program
                that failed has consumed the state, whose error is under way.
        """
        split = self.run_split or self.split
        split.write(state.params, state.frozen, state.others)
        self.opt_state = state.opt_state
        if step is None and is_consumed(state.step):
            return
        self.step = int(state.step) if step is None else step
        if isinstance(state.step, jax.Array) and not state.step.committed:
            self._place = (self.step, self.seed), (state.step, state.seed)

    def follow_distribution(self, distribution: Distribution | None) -> None:
        """Lays all arrays out as a distribution says from now on."""
        before = self.placement.distribution
        if distribution is before:
            return
        self.placement = placement_for(distribution)
        if before is not None and distribution is None:
            for _, weight, _ in iter_weights(self.module):
                value = weight.get_raw_value()
                if isinstance(value, jax.Array):
                    weight.set_raw_value(to_one_device(value))
            self.opt_state = jax.tree.map(to_one_device, self.opt_state)
        self._place = None

    def place_weights(self) -> None:
        """Puts the weights, and what the optimizer keeps, where they belong."""
        distribution, split = self.placement.distribution, self.split
        if distribution is None or self.state is not None:
            return
        groups = split.read()
        now = self.placement, split, distribution.rules
        if self._checked != now:
            weights = {n: v for group in groups for n, v in group.items()}
            self.placement.check(self.module, weights)
            self._checked = now
        initial = getattr(getattr(self.module, "_meta", None), "value", None)
        initial = getattr(initial, "initial", {})  # values that nobody has changed yet
        for arrays in groups:
            placed = self.placement.weights(arrays)
            unchanged = [n for n, v in arrays.items() if initial.get(n) is v]
            initial.update({name: placed[name] for name in unchanged})
            split.write(placed)

    def take_place(self) -> tuple[Any, Any]:
        """Batches done and the key data of the seed, on the device.

        They are there already after a run, and consumed by the next one; unless they
        are bound to a device, which the model may have left.
        """
        place, self._place = self._place, None
        now = self.step, self.seed
        if place is not None and place[0] == now:
            return place[1]
        return jax.device_put((np.int32(self.step), seed_data(self.seed)))

    def begin_run(self, state: TrainState) -> None:
        """Trains from a state on, which was made for all as it is now."""
        self.state, self.run_split = state, self.current_split
        self.run_revision = self.optimizer.revision

    def end_run(self) -> None:
        """Gives the arrays of the run under way back to the module."""
        state, self.state = self.state, None
        assert state is not None
        # After a process is lost the state may never be computed: it is not waited for.
        self.adopt(state, self.step if is_broken() else None)
        self.run_split = None

    def call_hook(self, hook: Callable, *args: Any, light: bool = False) -> None:
        """Runs a hook; unless it is light, it sees and may change the weights."""
        thread = threading.get_ident()
        if light or self._lent_to == thread:
            hook(*args)
            return
        with self.lending():
            hook(*args)

    @contextlib.contextmanager
    def lending(self) -> Iterator[None]:
        """In the block this thread may use the module and change it, as a hook may."""
        self.hooked = True
        split = self.run_split or self.split
        split.write(*self.live_arrays())
        self._lent_to = threading.get_ident()
        try:
            yield
        finally:
            self._lent_to = None
        changed, state = split.replaced_arrays(*self.live_arrays()), self.state
        assert state is not None
        if changed is not None:
            params, frozen, others = changed
            if self.placement.spans_processes:
                before = state.params | state.frozen | state.others
                now = params | frozen | others
                new = {n: v for n, v in now.items() if before.get(n) is not v}
                self._new_weights |= new
            if self.shown is not None and split.replaced_arrays(self.shown) is None:
                params = state.params
            state = state.replace(params=params, frozen=frozen, others=others)
            state = self.placement.state(state)
        self.state = self.own(state)

    @contextlib.contextmanager
    def telling(self, callbacks: CallbackList) -> Iterator[None]:
        """In the block, callbacks are told of compilations."""
        before, self._told = self._told, callbacks
        try:
            yield
        finally:
            self._told = before

    def tell_compilation(self, program: str) -> None:
        if self._told is not None:
            self._told.on_compile(program)

    def tell_compiled(self, program: str, seconds: float) -> None:
        if self._told is not None:
            self._told.on_compile_end(program, seconds)


def _busy(op: str) -> BusyError:
    return BusyError(
        op,
        "the model is being trained, and its arrays are in use",
        hint="Wait until the other call returns. Callbacks may evaluate and predict in "
        "on_epoch_end and their other hooks, and train a model.clone().",
    )
