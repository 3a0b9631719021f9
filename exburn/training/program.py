"""The compiled programs of a model: run, noted, and never losing what they consume."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.module.building import spec_like
from exburn.runtime.device import host
from exburn.runtime.donation import is_consumed
from exburn.runtime.failures import is_exhausted
from exburn.runtime.gc_pause import has_started, starting
from exburn.runtime.sharding.current import spread_by_hand
from exburn.training.block_stacks import is_worth_packing
from exburn.training.compile_log import (
    CompileLog,
    Spec,
    batch_specs,
    changes_of,
    specs_of,
)
from exburn.training.settings import Settings
from exburn.training.state import TrainState
from exburn.training.steps import Steps

# The argument that holds the data. Row numbers, if any, come next.
_DATA = {"train": 2, "evaluate": 2, "predict": 1}


class Program:
    """A compiled function: it places its arguments, notes when it compiles, and why.

    One that trains consumes the state it is given, but for its totals: those an epoch
    begins with stay on the device for others.
    """

    def __init__(
        self,
        function: Callable,
        name: str,
        steps: Steps,
        log: CompileLog,
        settings: Settings,
        options: dict[str, Any] | None,
    ):
        self._name, self._counts, self._eager = name, steps.counts, steps.eager
        self._placement = steps.placement
        self._stacks = steps.stacks if name == "train" else None
        self._log, self._settings = log, settings
        self._call: Any = function
        if not steps.eager:
            donated = (0,) if name == "train" else ()
            self._call = jax.jit(
                _with_name(function, name),
                donate_argnums=donated,
                compiler_options=options,
            )
        self._model: dict[str, Spec] = {}  # as it was when this last compiled
        self._places: set[tuple[str, str]] = set()  # that it was compiled for
        self._proven: set[tuple] = set()  # forms of the data that it has run on
        # Compilations under way: by the forms of arguments, these and seconds so far.
        self._begun: dict[tuple, tuple[tuple, float, Future]] = {}

    def __call__(
        self, *args: Any, restore: Callable[[TrainState], None] | None = None
    ) -> Any:
        """Runs it; compiles it before, if need be.

        A device that has not enough memory says so when a program first runs on data
        of some size, and may have freed the state by then. With ``restore`` a copy is
        kept in host memory until that run is over, which is made while the program
        compiles.

        Args:
            restore: Called with an equal state if the program failed, and the one that
                it was given is gone.
        """
        whole, args = args, _apart_from_totals(self._pack(args))
        if self._eager:
            return self._call(*args)
        if self._placement.spans_processes:  # no process has all of the state
            restore = None
        form = _form_of(args[2:]) if restore is not None else ()
        unsafe = restore is not None and form not in self._proven
        remake: Any = None
        if unsafe:
            with self._compiling(args) as lowering:
                if lowering is not None:
                    lowering.lowered = self._call.lower(*lowering.arguments)
            remake = jax.tree.map(_copy_to_host, whole[0])
        failed = not self.finish_compiling(*args)
        args, places = self._placement.bind(args, _DATA[self._name])
        before, start = self._counts[self._name], time.perf_counter()
        try:
            compiling = contextlib.nullcontext() if self._model else starting()
            with compiling, self._spreading(places):
                out = self._call(*args)
            self._free(whole, args)
            is_compiled = self._counts[self._name] == before and places in self._places
            if failed or not is_compiled:
                self._note(args, time.perf_counter() - start, places)
            if unsafe:
                jax.block_until_ready(out[1])
        except BaseException:
            if unsafe and restore is not None:
                if any(map(is_consumed, jax.tree.leaves(whole[0]))):
                    restore(jax.tree.map(lambda make: make(), remake))
            raise
        if unsafe:
            self._proven.add(form)
        return out

    def begin_compiling(self, *args: Any, further: bool = False) -> None:
        """Begins to compile for arguments like these, unless it ever has before.

        It is traced at once, and compiled by a thread, for which the interpreter has
        nothing to do. If that fails, so will the call, which can say why.

        Args:
            further: Whether it may have been compiled for arguments of other shapes.
        """
        args = _apart_from_totals(self._pack(args))
        with self._compiling(args, further) as lowering:
            if lowering is not None:
                lowering.lowered = self._call.lower(*lowering.arguments)

    def _pack(self, args: tuple) -> tuple:
        """The arguments, with parameters of equal blocks put together."""
        state = args[0]
        if not isinstance(state, TrainState) or self._stacks is None:
            return args
        if state.stacks is not None or not is_worth_packing(*args[1:3]):
            return args
        return self._stacks.pack(state), *args[1:]

    def _free(self, whole: tuple, args: tuple) -> None:
        """Frees the arrays that were put together, as a program consumes its own."""
        if self._stacks is not None and args[0] is not whole[0]:
            if whole[0].stacks is None and args[0].stacks is not None:
                for array in self._stacks.parts(whole[0]):
                    array.delete()

    @contextlib.contextmanager
    def _compiling(
        self, args: tuple, further: bool = False
    ) -> Iterator[_Lowering | None]:
        """After the block, a thread compiles what was lowered in it."""
        disabled = jax.config.jax_disable_jit  # type: ignore[attr-defined]
        skips = (
            self._eager or disabled or ((self._model or self._begun) and not further)
        )
        start, form = time.perf_counter(), _form_of(args)
        if skips or form in self._begun:
            yield None
            return
        arguments, places = self._placement.bind(args, _DATA[self._name])
        lowering = _Lowering(arguments)
        with starting(), self._spreading(places):
            yield lowering
        traced, specs = time.perf_counter() - start, jax.tree.map(spec_like, arguments)
        threads = ThreadPoolExecutor(1, "exburn-compiler")
        compiling = threads.submit(_time, lowering.lowered.compile)
        self._begun[form] = (specs, places), traced, compiling
        threads.shutdown(wait=False)

    def finish_compiling(self, *args: Any) -> bool:
        """Waits for what was begun for arguments; False if it did not compile."""
        if not self._begun or (begun := self._begun.pop(_form_of(args), None)) is None:
            return True
        (specs, places), traced, compiling = begun
        if compiling.exception() is not None:
            return False
        self._note(specs, traced + compiling.result(), places)
        return True

    def _spreading(
        self, places: tuple[str, str]
    ) -> contextlib.AbstractContextManager[None]:
        """In the block it is known what the arrays' devices have of them."""
        if self._placement.distribution is None and ", " in places[0]:
            return spread_by_hand()  # a user has put them there
        return self._placement.scope()

    def _note(self, args: tuple, seconds: float, places: tuple[str, str]) -> None:
        """Notes that it was compiled for these arguments."""
        has_started()
        # Donated arrays have lost their contents, not their shapes.
        model = specs_of(model=_unpack(args[0]))
        changed = changes_of(self._model, model) if self._model else []
        if self._places and places not in self._places:
            where = places[0] or places[1] or "no device"
            changed.append((f"the arrays are bound to {where}", "place"))
        self._model = model
        self._places.add(places)
        specs = batch_specs(args, _DATA[self._name])
        self._log.note(self._name, specs, changed, self._settings, seconds)


@dataclasses.dataclass
class _Lowering:
    """The arguments that a program is lowered for, and what that has given."""

    arguments: tuple
    lowered: Any = None


class Programs:
    """The programs of a model with its losses and optimizer, as they are now.

    Args:
        options: What the compiler is told of the programs that train, and of others.
        like: Programs that differ in the optimizer alone, which only trains.

    Attributes:
        train, train_groups: ``program(state, *chunk)`` trains on a chunk, the latter on
            whole groups of batches, each of which makes one update.
        joins: What may run as one: see ``merged_batches``.
    """

    def __init__(
        self,
        steps: Steps,
        *,
        settings: Settings,
        log: CompileLog,
        options: Callable[[bool], dict[str, Any] | None] = lambda training: None,
        like: Programs | None = None,
    ):
        self.steps, self.split = steps, steps.split
        self._settings = settings

        def program(function: Callable, name: str) -> Program:
            compiler_options = options(name == "train")
            return Program(function, name, steps, log, settings, compiler_options)

        self.train = program(steps.train, "train")
        self.train_groups = program(steps.train_groups, "train")
        self.joins: dict[Any, bool] = {}
        self._options, self._further = options, {} if like is None else like._further
        if like is None:
            self.evaluate = program(steps.evaluate, "evaluate")
            self.predict = program(steps.predict, "predict")
        else:
            self.evaluate, self.predict = like.evaluate, like.predict

    def further(
        self,
        name: str,
        make: Callable[[], Callable],
        *,
        donated: tuple[int, ...] = (),
        static: tuple[int, ...] = (),
    ) -> Callable:
        """Another program over the same state: made once, compiled, and counted.

        Args:
            name: Under which it is kept and counted.
            make: Makes the pure function; called the first time only.
            donated: Places of the arguments that it consumes.
            static: Places of those that are compiled in, for which it is hashed.
        """
        if name not in self._further:
            function, steps = make(), self.steps

            def run_traced(*args):
                with steps.tracing(name):
                    return function(*args)

            self._further[name] = function
            if not steps.eager:
                options = self._options(False)
                self._further[name] = jax.jit(
                    _with_name(run_traced, name),
                    donate_argnums=donated,
                    static_argnums=static,
                    compiler_options=options,
                )
        return self._further[name]

    def apart(self) -> Program:
        """The program that trains, once more: nobody counts or notes its compilations.

        It is for states that are consumed beside the model's own.
        """
        steps, options = self.steps.without_counting(), self._options(True)
        log, settings = CompileLog(), self._settings
        return Program(steps.train, "train", steps, log, settings, options)

    def trace(self, kind: str, state: Any, data: Any, filled: bool = False) -> Any:
        """One step on specs, as ``jax.jit(…).trace`` returns it; it is not counted.

        Args:
            filled: Whether some of its rows fill it up, and are masked.
        """
        steps = self.steps.without_counting()
        if kind == "train":
            step = jax.jit(steps.train, donate_argnums=(0,))
            count = (jax.ShapeDtypeStruct((1,), jnp.int32),) if filled else None
            return step.trace(*_apart_from_totals((state, data, None, count)))
        start = jax.ShapeDtypeStruct((), jnp.int32)
        return jax.jit(steps.predict).trace(state, data, None, start)


def _with_name(function: Callable, name: str) -> Callable:
    """The function by the name that its program has in profiles and caches."""
    program: Any = functools.partial(function)
    program.__name__ = f"exburn_{name}"
    return program


def _apart_from_totals(args: tuple) -> tuple:
    """The arguments of a program, of which one that trains keeps its totals."""
    if not isinstance(args[0], TrainState):
        return args
    return args[0].replace(metrics=None), args[0].metrics, *args[1:]


def _unpack(model: Any) -> Any:
    """Specs of a model, of whose parameters each is by itself."""
    if not isinstance(model, TrainState) or model.stacks is None:
        return model
    return model.stacks.unpack(jax.tree.map(spec_like, model))


def _form_of(args: Any) -> tuple:
    """Shapes and dtypes of the arrays among some arguments."""
    return tuple((v.shape, v.dtype) for v in jax.tree.leaves(args))


def _time(call: Callable[[], Any]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def _copy_to_host(leaf: Any) -> Callable[[], Any]:
    """A function that makes the array again, from a copy in host memory."""
    if not isinstance(leaf, jax.Array):
        return lambda: leaf
    sharding, kind = leaf.sharding, leaf.dtype
    if jnp.issubdtype(kind, jax.dtypes.prng_key):
        data, impl = np.array(jax.random.key_data(leaf)), jax.random.key_impl(leaf)
        return lambda: jax.random.wrap_key_data(jax.device_put(data), impl=impl)
    values = np.asarray(leaf)
    if not values.reshape(-1).view(np.uint8).any():  # an optimizer's, before it begins
        return lambda: _put_back(np.zeros(leaf.shape, kind), sharding)
    copy = np.array(values)  # on a CPU they are the array's own
    return lambda: _put_back(copy, sharding)


def _put_back(values: np.ndarray, sharding: jax.sharding.Sharding) -> jax.Array:
    """An array on its devices; in the host's memory, for now, where they are full."""
    try:
        return jax.block_until_ready(jax.device_put(values, sharding))
    except jax.errors.JaxRuntimeError as error:
        if not is_exhausted(error) or host() is None:
            raise
    with jax.default_device(host()):
        return jnp.asarray(values)  # bound to no device: the next run moves it
