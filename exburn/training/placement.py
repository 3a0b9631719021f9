"""Where the arrays of a run lie: on one device, or divided over those of a mesh."""

from __future__ import annotations

import contextlib
import functools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from exburn import layers
from exburn.errors import LayoutError
from exburn.module.traversal import iter_modules
from exburn.runtime.placement import bound_to, is_bound, together
from exburn.runtime.sharding import current, processes
from exburn.runtime.sharding.arrays import put, to_host
from exburn.runtime.sharding.strategies import Distribution
from exburn.training.state import TrainState

Bound = tuple[tuple, tuple[str, str]]


class OneDevice:
    """All arrays lie where JAX puts new ones, or where somebody has bound them.

    Attributes:
        spans_processes: Whether arrays lie on devices of several processes.
        own_data: Whether each of them has rows of its own.
        parts: Parts that a batch is divided into.
        devices: Number of the devices that a program runs on.
        local_devices: Those of them that are this process' own; that one, if empty.
    """

    distribution: Distribution | None = None
    spans_processes = False
    own_data = False
    parts = devices = 1
    local_devices: tuple[Any, ...] = ()

    def scope(self) -> contextlib.AbstractContextManager[None]:
        """In the block, weights are made where they belong."""
        if current.distribution() is None:
            return contextlib.nullcontext()
        return current.in_force(None)

    def width(self, rows: int) -> int:
        """Rows that a step of so many runs with: those that fill it up are masked."""
        return rows

    def check(self, module: Any, weights: dict[str, Any]) -> None:
        """Raises a LayoutError if a module cannot be laid out so."""

    def weights(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """Weights where they belong, by their names."""
        return arrays

    def init(self, init: Callable, params: Any) -> Any:
        """The first state of an optimizer."""
        return init(params)

    def state(self, state: TrainState, beside: Any = ()) -> TrainState:
        """A state whose arrays a program takes together with others."""
        return together(state, beside)

    # ------------------------------------------------------------------ specs
    def slot_specs(self, init: Callable, params: Any) -> Any:
        """Specs of an optimizer's first state, with their layouts."""
        return jax.eval_shape(init, params)

    def state_specs(self, state: Any) -> Any:
        """Specs of a ``TrainState``, or of the module's arrays, with their layouts."""
        return state

    def row_specs(self, tree: Any) -> Any:
        """Specs of batches ``[steps, rows, …]``, with their layouts."""
        return tree

    def send(self, tree: Any) -> Any:
        """Batches ``[steps, rows, …]`` on their way to where programs take them."""
        return jax.device_put(tree)

    def send_whole(self, tree: Any) -> Any:
        """Data of which every device may need any row, on their way."""
        return jax.device_put(tree)

    def columns(self, rows: int) -> slice:
        """Rows of a batch of so many that this process has to send."""
        return slice(None)

    def send_columns(self, tree: Any, rows: int) -> Any:
        """Batches ``[steps, rows of this process, …]`` on their way.

        Args:
            rows: Rows of a whole batch.
        """
        return self.send(tree)

    def send_counts(self, counts: Any, rows: int) -> Any:
        """Real rows of each step of so many, on their way; see ``Chunk.count``."""
        return self.send_whole(counts)

    def local(self, outputs: Any) -> Any:
        """Outputs ``[steps, rows, …]`` of a prediction for this process' rows."""
        return outputs

    def bind(self, args: tuple, data: int) -> Bound:
        """Arguments of a program that are all bound if one is, but for the first.

        Else JAX would compile a program for each mixture.

        Args:
            data: Number of the argument that holds the data.

        Returns:
            The arguments, and the devices that the first and the others are bound to.
        """
        first = jax.tree.leaves(args[0])[:1]  # of a state, whose arrays are alike
        if not any(map(is_bound, (*first, *jax.tree.leaves(args[1:])))):
            return args, ("", "")
        args = args[0], *together(args[1:], first, may_alias=True)
        return args, (bound_to(first), bound_to(args[1:]))

    # ------------------------------------------------------------------ in a trace
    def batch(self, batch: Any) -> Any:
        """A batch in a program, where its rows belong."""
        return batch

    def gradients(self, grads: Any) -> Any:
        """Gradients in a program, where they belong."""
        return grads

    def next_state(self, state: TrainState) -> TrainState:
        """A step's state in a program, where it belongs."""
        return state

    def totals(self, totals: Any) -> Any:
        """Totals and means in a program, where they belong."""
        return totals

    def outputs(self, outputs: Any) -> Any:
        """Outputs of a prediction in a program, where the host reads them."""
        return outputs

    def gathering(self, loss: Callable) -> Callable:
        """A loss of parameters that gathers them where they are divided."""
        return loss


class OnMesh(OneDevice):
    """Arrays are divided over the devices of a mesh, as a distribution says."""

    def __init__(self, distribution: Distribution):
        self.distribution: Distribution = distribution
        self.spans_processes = distribution.spans_processes
        self._whole = distribution.sharding()
        self._devices = ", ".join(sorted(map(str, self._whole.device_set)))
        self.parts = distribution.num_model_replicas
        self.devices = distribution.mesh.size
        self.local_devices = tuple(distribution.mesh.local_devices)
        self._columns: dict[int, slice] = {}  # of a few sizes

    def scope(self) -> contextlib.AbstractContextManager[None]:
        return current.in_force(self.distribution)

    def width(self, rows: int) -> int:
        return math.ceil(rows / self.parts) * self.parts

    def check(self, module: Any, weights: dict[str, Any]) -> None:
        shapes = [(path, tuple(v.shape)) for path, v in weights.items()]
        results = [f"{path}/output" for path, _ in iter_modules(module)]
        self.distribution.check(shapes, results)
        if self.distribution.sequence_parts > 1:
            _check_positions(module)

    def weights(self, arrays: dict[str, Any]) -> dict[str, Any]:
        sharding = self.distribution.weight_sharding
        return {n: put(v, sharding(n, v.shape)) for n, v in arrays.items()}

    def init(self, init: Callable, params: Any) -> Any:
        layouts = jax.tree.map(lambda v: v.sharding, self.slot_specs(init, params))
        return jax.jit(init, out_shardings=layouts)(params)

    def state(self, state: TrainState, beside: Any = ()) -> TrainState:
        return self._map_state(state, put)

    def slot_specs(self, init: Callable, params: Any) -> Any:
        return jax.tree_util.tree_map_with_path(
            lambda path, v: _spec(v, self._of_slot(path, v.shape, params)),
            jax.eval_shape(init, params),
        )

    def state_specs(self, state: Any) -> Any:
        if isinstance(state, TrainState):
            return self._map_state(state, _spec)
        sharding = self.distribution.weight_sharding
        return tuple(
            {n: _spec(v, sharding(n, v.shape)) for n, v in arrays.items()}
            for arrays in state
        )

    def row_specs(self, tree: Any) -> Any:
        return jax.tree.map(lambda v: _spec(v, self._of_rows(v, 1)), tree)

    def send(self, tree: Any) -> Any:
        return jax.tree.map(lambda v: put(v, self._of_rows(v, 1)), tree)

    def send_whole(self, tree: Any) -> Any:
        return jax.tree.map(lambda v: put(v, self._whole), tree)

    def columns(self, rows: int) -> slice:
        if not self.spans_processes:
            return slice(None)
        if rows not in self._columns:
            self._columns[rows] = self._find_columns(rows)
        return self._columns[rows]

    def _find_columns(self, rows: int) -> slice:
        layout = self.distribution.sharding(self.distribution.batch_spec(rows))
        indices = layout.addressable_devices_indices_map((rows,)).values()
        parts = sorted({part[0].indices(rows)[:2] for part in indices if part})
        ends = [stop for _, stop in parts[:-1]]
        if ends != [start for start, _ in parts[1:]]:
            return slice(None)  # they do not follow one another
        return slice(parts[0][0], parts[-1][1]) if parts else slice(None)

    def send_columns(self, tree: Any, rows: int) -> Any:
        columns = self.columns(rows)
        if columns.indices(rows)[:2] == (0, rows):
            return self.send(tree)
        return jax.tree.map(lambda v: self._send_part(v, rows), tree)

    def _send_part(self, value: Any, rows: int) -> Any:
        """An array whose rows are this process' own, as one of all processes."""
        shape = value.shape[0], rows, *value.shape[2:]
        layout = self.distribution.sharding(self.distribution.batch_spec(rows, 1))
        return jax.make_array_from_process_local_data(layout, np.asarray(value), shape)

    def bind(self, args: tuple, data: int) -> Bound:
        first = args[0]
        if not isinstance(first, TrainState):  # a state is placed when it is made
            first = tuple(map(self.weights, first))
        bound = [
            self.send(arg) if at == data and self._comes_in_rows(arg) else arg
            for at, arg in enumerate(args)
        ]
        return (first, *self.send_placed(bound[1:])), (self._devices, self._devices)

    def send_placed(self, tree: Any) -> Any:
        """The arrays, of which those that lie on the mesh stay as they are."""

        def place(leaf: Any) -> Any:
            on_mesh = is_bound(leaf) and leaf.sharding.device_set == self._device_set
            return leaf if on_mesh else put(leaf, self._whole)

        return jax.tree.map(place, tree)

    # ------------------------------------------------------------------ in a trace
    def batch(self, batch: Any) -> Any:
        return jax.tree.map(lambda v: self._constrain(v, self._of_positions(v)), batch)

    def gradients(self, grads: Any) -> Any:
        spec, sharding = self.distribution.gradient_spec, self.distribution.sharding
        return {
            name: self._constrain(v, sharding(spec(name, v.shape)))
            for name, v in grads.items()
        }

    def next_state(self, state: TrainState) -> TrainState:
        return self._map_state(state, self._constrain)

    def totals(self, totals: Any) -> Any:
        return jax.tree.map(lambda v: self._constrain(v, self._whole), totals)

    def outputs(self, outputs: Any) -> Any:
        if self.spans_processes:  # each reads them all
            return self.totals(outputs)
        return self.batch(outputs)

    def gathering(self, loss: Callable) -> Callable:
        if not self.distribution.gathers:
            return loss

        def loss_of_parts(params: Any, *args: Any) -> Any:
            return loss({n: self._gather(n, v) for n, v in params.items()}, *args)

        return jax.checkpoint(loss_of_parts, policy=_is_kept)

    def _gather(self, name: str, weight: Any) -> Any:
        """A weight in a program, gathered; its gradient is divided as it is itself."""
        divided = self.distribution.weight_sharding(name, weight.shape)
        computed = self.distribution.compute_spec(name, weight.shape)
        gathered = self.distribution.sharding(computed)
        if divided.is_equivalent_to(gathered, weight.ndim):
            return weight

        def make_gathered(weight: Any) -> Any:
            # Without the first, XLA gathers in front of the barrier that keeps the
            # passes apart, and so once for both.
            return self._constrain(self._constrain(weight, divided), gathered)

        gather = jax.custom_vjp(make_gathered)
        gather.defvjp(  # else the sum of its gradient were whole, and then cut
            lambda weight: (make_gathered(weight), None),
            lambda _, slope: (self._constrain(slope, divided),),
        )
        return gather(weight)

    def _constrain(self, value: Any, sharding: Any) -> Any:
        if not isinstance(value, Tracer):  # operation by operation
            return put(value, sharding)
        return jax.lax.with_sharding_constraint(value, sharding)

    # ------------------------------------------------------------------ layouts
    @functools.cached_property
    def _device_set(self) -> Any:
        return self._whole.device_set

    def _of_rows(self, value: Any, axis: int) -> Any:
        shape = np.shape(value)
        if len(shape) <= axis:
            return self._whole
        return self.distribution.sharding(
            self.distribution.batch_spec(shape[axis], axis)
        )

    def _of_positions(self, value: Any) -> Any:
        if self.distribution.sequence_parts == 1 or not np.ndim(value):
            return self._of_rows(value, 0)
        spec = self.distribution.position_spec(np.shape(value))
        return self.distribution.sharding(spec)

    def _comes_in_rows(self, data: Any) -> bool:
        """Whether data are batches of NumPy's that nobody has sent yet."""
        return not any(map(is_bound, jax.tree.leaves(data)))

    def _of_slot(self, path: tuple, shape: tuple[int, ...], params: Any) -> Any:
        """The layout of an array of an optimizer's state: as its weight's slot."""
        for key in reversed(path):
            name: Any = getattr(key, "key", None)
            if name in params and np.shape(params[name]) == shape:
                spec = self.distribution.slot_spec(name, shape)
                return self.distribution.sharding(spec)
        return self._whole

    def _map_state(self, state: TrainState, place: Callable) -> TrainState:
        sharding = self.distribution.weight_sharding

        def weights(arrays: dict[str, Any]) -> dict[str, Any]:
            return {n: place(v, sharding(n, v.shape)) for n, v in arrays.items()}

        def slots(path: tuple, leaf: Any) -> Any:
            return place(leaf, self._of_slot(path, np.shape(leaf), state.params))

        def whole(leaf: Any) -> Any:
            return place(leaf, self._whole)

        return TrainState(
            params=weights(state.params),
            frozen=weights(state.frozen),
            others=weights(state.others),
            opt_state=jax.tree_util.tree_map_with_path(slots, state.opt_state),
            metrics=jax.tree.map(whole, state.metrics),
            step=whole(state.step),
            seed=whole(state.seed),
        )


def _check_positions(module: Any) -> None:
    """Raises if a layer cannot compute sequences whose positions devices divide.

    One that goes from position to position cannot. All others are right, for XLA
    divides them as it divides any array: those of single positions have nothing to
    send, windows read their neighbours' edges, what reads all positions gathers them.
    """
    for path, layer in iter_modules(module):
        if isinstance(layer, layers.RNN | layers.Bidirectional):
            kind = type(layer).__name__
            raise LayoutError(
                path or layer.name,
                f"devices cannot divide the positions of a sequence: {kind} goes from "
                "one to the next",
                hint="Leave out the mesh's axis 'context': mesh='data' divides rows.",
            )


# What the pass backward makes again of weights that it gathers again, and of all else:
# it costs no arithmetic, and were it kept, all gathered weights would be.
_MADE_AGAIN = frozenset(
    "sharding_constraint convert_element_type reshape transpose squeeze expand_dims "
    "broadcast_in_dim copy copy_p slice split concatenate pad".split()
)


def _is_kept(primitive: Any, *_: Any, **params: Any) -> bool:
    """Whether a result of the pass forward is kept for the pass backward."""
    return primitive.name not in _MADE_AGAIN


def _spec(value: Any, sharding: Any) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)


class OwnData(OnMesh):
    """Each process has data of its own, and gives its devices their rows of a batch.

    All sizes of batches are then those of a process.
    """

    own_data = True

    def __init__(self, distribution: Distribution):
        super().__init__(distribution)
        layout = distribution.sharding(distribution.batch_spec(self.parts))
        owners: dict[Any, set[int]] = {}
        for device, part in layout.devices_indices_map((self.parts,)).items():
            owners.setdefault(part[0].start or 0, set()).add(device.process_index)
        of_each = Counter(next(iter(devices)) for devices in owners.values())
        shared = any(len(devices) > 1 for devices in owners.values())
        if shared or len(owners) < self.parts or len(set(of_each.values())) > 1:
            raise LayoutError(
                "compile",
                "the processes do not divide the batch evenly among them, so they "
                "cannot have data of their own",
                {"distribution": distribution, "parts of each": dict(of_each)},
                hint="Leave out auto_shard_dataset=False, and give all of them the "
                "same data.",
            )
        self._own_parts = of_each[processes.index()]

    def width(self, rows: int) -> int:
        return math.ceil(rows / self._own_parts) * self._own_parts

    def columns(self, rows: int) -> slice:
        return slice(None)

    def send(self, tree: Any) -> Any:
        def send(value: Any) -> Any:
            if np.ndim(value) < 2:
                return put(value, self._whole)
            return self._send_part(value, self._all(value.shape[1]))

        return jax.tree.map(send, tree)

    def send_columns(self, tree: Any, rows: int) -> Any:
        return self.send(tree)

    def send_counts(self, counts: Any, rows: int) -> Any:
        """Real rows of each part of the batch, of each step: ``[steps, parts]``."""
        if counts is None:
            return None
        part = rows // self._own_parts
        first = part * np.arange(self._own_parts)
        own = np.clip(np.asarray(counts[0])[:, None] - first, 0, part)
        sent = own.astype(np.int32), own > 0
        return tuple(self._send_part(v, self.parts) for v in sent[: len(counts)])

    def outputs(self, outputs: Any) -> Any:
        return self.batch(outputs)

    def local(self, outputs: Any) -> Any:
        def rows(leaf: Any) -> Any:
            shards = {s.index[1].start or 0: s.data for s in leaf.addressable_shards}
            parts = [np.asarray(shards[start]) for start in sorted(shards)]
            return np.concatenate(parts, axis=1)

        return jax.tree.map(rows, outputs)

    def _all(self, rows: int) -> int:
        """Rows of all processes, where this one has so many."""
        return rows * self.parts // self._own_parts


def placement_for(distribution: Distribution | None) -> OneDevice:
    """The placement of a distribution; that of one device without."""
    if distribution is None:
        return OneDevice()
    own = distribution.spans_processes and not distribution.auto_shard_dataset
    return OwnData(distribution) if own else OnMesh(distribution)


def to_one_device(value: jax.Array) -> jax.Array:
    """An array of a mesh where JAX puts new ones, bound to nothing."""
    return jax.device_put(to_host(value))
