"""Where a model computes, and a look inside while it does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import jax

from exburn.data import ArrayDataset
from exburn.errors import ArgumentError, unknown_name
from exburn.models.encoding import read_batch
from exburn.models.inferring import require_predictor
from exburn.models.network import Network
from exburn.models.preparing import on_device, prepare
from exburn.models.session import require_idle, require_trainer
from exburn.module.forward_hooks import Capture, Tap
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules, iter_weights
from exburn.runtime.device import device_of
from exburn.runtime.donation import own_leaves, own_variables
from exburn.training import statistics


def capture(
    self: Network,
    x: Any,
    layers: Iterable[Any] | None = None,
    *,
    training: bool = False,
) -> dict[str, Any]:
    """What layers put out for an input, from one compiled program.

    Args:
        x: Inputs, as for ``predict``; all rows at once.
        layers: Names, paths (``"block/dense"``) or layers; those directly in the
            model by default.
        training: Whether dropout and the like are active, with a fixed key.

    Returns:
        NumPy arrays by name, in the order asked for; a list of them for a layer
        that is called several times.

    Raises:
        UnknownNameError: The model has no such layer.
        ArgumentError: A layer runs inside a loop, as the cells of an RNN do.
        DataError, ShapeError: The input does not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential(
        ...     [
        ...         exburn.Input((4,)),
        ...         exburn.layers.Dense(3, "relu", name="hidden"),
        ...         exburn.layers.Dense(2, name="out"),
        ...     ]
        ... )
        >>> found = model.capture(np.ones((5, 4)), layers=["hidden"])
        >>> found["hidden"].shape, bool((found["hidden"] >= 0).all())
        ((5, 3), True)
    """
    dataset = read_batch(self, x, op="capture")
    trainer = require_predictor(self)
    prepare(self, "predict", ArrayDataset(dataset.tree[0], op="capture"))
    if layers is None:
        host = self.host_graph
        layers = [
            layer
            for layer in self.layers
            if not getattr(layer, "is_input", False)
            and (host is None or host.runs_in_program(self.nodes, layer))
        ]
    elif isinstance(layers, str) or not isinstance(layers, Iterable):
        layers = [layers]
    paths = {path_of_layer(self, layer): None for layer in layers}
    programs = trainer.preparer.programs

    def make() -> Callable:
        def run(groups, x):
            outputs = Capture(paths)
            programs.split.forward(
                groups,
                x,
                training=training,
                key=jax.random.key(0),
                interceptors=(outputs,),
            )
            return outputs.outputs

        return run

    program = programs.further(f"capture {training} {', '.join(paths)}", make)
    try:
        with on_device(self):
            arrays = program(programs.split.read(), dataset.tree[0])
    except jax.errors.UnexpectedTracerError as error:
        raise _hidden_error(list(paths)) from error
    if missing := [path for path in paths if not arrays[path]]:
        raise _hidden_error(missing)
    arrays = jax.device_get(arrays)
    return {p: v[0] if len(v := arrays[p]) == 1 else v for p in paths}


def on_output(self: Network, layer: Any, fn: Callable[[Any], Any]) -> Tap:
    """Streams a layer's outputs out of running programs.

    ``fn`` gets NumPy arrays, in ``fit`` and ``evaluate`` without the rows that pad
    a short batch (in ``predict`` with them). It runs on another thread while the
    device goes on: call
    ``exburn.compute.synchronize()`` to wait for calls under way. Where it raises,
    the exception is logged and kept in the returned tap's ``error``, and the
    program goes on.

    Args:
        layer: A name, a path or a layer of the model.
        fn: Called with the outputs of every call of the layer.

    Returns:
        A handle with ``remove()``; also a context manager.

    Raises:
        UnknownNameError: The model has no such layer.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> seen = []
        >>> with model.on_output("dense", lambda out: seen.append(out.shape)):
        ...     _ = model.predict(np.ones((8, 4)), verbose=0)
        ...     exburn.compute.synchronize()
        >>> seen
        [(8, 3)]
    """
    if not callable(fn):
        raise ArgumentError(
            "on_output", f"fn must be a function, received {type(fn).__name__}"
        )
    path = path_of_layer(self, layer)
    target = next(m for p, m in iter_modules(self) if p == path)
    return Tap(target, fn).attach()


def measure(model: Network, paths: list[str], gradients: bool) -> statistics.Statistics:
    """Statistics of the batch that was just trained on; see ``training.statistics``."""
    return statistics.measure(require_trainer(model, "Watch"), paths, gradients)


def path_of_layer(model: Network, layer: Any) -> str:
    """The path of a layer given by itself, its path, or its name."""
    layers = {p: m for p, m in iter_modules(model) if p and isinstance(m, Layer)}
    for path, module in layers.items():
        if module is layer or path == layer:
            return path
    named = {m.name: p for p, m in reversed(layers.items())}
    if layer not in named:
        name = getattr(layer, "name", layer)
        raise unknown_name("layer", name, layers, op=type(model).__name__)
    return named[layer]


def to_device(self: Network, device: Any) -> Any:
    """Moves weights and optimizer state to a device, where the model then runs.

    Args:
        device: ``"cpu"``, ``"gpu"``, ``"gpu:1"`` or a JAX device.

    Returns:
        The model.

    Raises:
        ArgumentError: There is no such device here.
        BusyError: The model is being trained.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model.to_device("cpu").weights[0].get_value().device.platform
        'cpu'
    """
    require_idle(self, "to_device")
    run = self._training_session
    run.device, run.distribution = device_of(device, "to_device"), None
    variables = {path: weight for path, weight, _ in iter_weights(self)}
    arrays = {path: w.get_raw_value() for path, w in variables.items()}
    own_variables(variables, arrays)  # on one device the memory stays the same
    for path, value in arrays.items():
        if isinstance(value, jax.Array):
            variables[path].set_raw_value(jax.device_put(value, run.device))
    if run.trainer is not None and run.trainer.holder.opt_state is not None:
        own = own_leaves(run.trainer.holder.opt_state)
        run.trainer.holder.opt_state = jax.device_put(own, run.device)
    return self


def _hidden_error(paths: list[str]) -> ArgumentError:
    return ArgumentError(
        "capture",
        "a layer must be called in the open, not inside a loop or by its parts alone",
        {"layers": ", ".join(paths)},
        hint="Capture the layer around it, for example the RNN of a cell.",
    )
