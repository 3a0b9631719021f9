"""Logs, weights and profiles for TensorBoard."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.callbacks.contract.rates import current_rate
from exburn.core.checks import check_count, check_path
from exburn.errors import CallbackError, require
from exburn.module.graph import Ref
from exburn.module.traversal import iter_weights
from exburn.runtime.files.atomic import telling_refusals
from exburn.runtime.files.ordinary import read_text
from exburn.runtime.sharding.arrays import to_host

_MOST_BYTES = 1 << 30  # of a file of tokens, one a line


_EXTRA = "tensorboard"
_REASON = "TensorBoard's files are written by tensorboardX"


class TensorBoard(Callback):
    """Writes logs, weights and profiles that TensorBoard shows.

    The files are written by ``tensorboardX``: ``pip install 'exburn[tensorboard]'``.
    ``tensorboard --logdir logs`` (a package of its own) shows them: the epochs' values
    as ``epoch_loss`` …, those of steps as ``batch_loss`` …, with the validation's as a
    second line under the same name.

    Args:
        log_dir: Folder of the runs ``train`` and ``validation``.
        histogram_freq: Every how many epochs histograms of the weights are written.
        write_graph: Write the graph of a functional model, or the summary of another
            one as text.
        write_images: Write weights as images, with the histograms or every epoch: the
            last axis is drawn across, all others down.
        write_steps_per_second: Write how fast the steps of each epoch are.
        update_freq: ``"epoch"``; or ``"batch"`` or a number of steps of an epoch, after
            which the logs of a step are written, too. The training then runs in chunks
            of so many steps.
        profile_batch: Number of the step, from 1, that JAX' profiler traces, or the
            first and the last one. The training then runs step by step.
        embeddings_freq: Every how many epochs the tables of embeddings are written for
            the projector.
        embeddings_metadata: A file with a label for each row, or a dict of them by the
            layer's path.
        every: Instead of ``update_freq``: the logs of steps are written as this filter
            says, also every so many seconds or chunks; of epochs, which are written.

    Raises:
        CallbackError: An option has a value that can never work.
        MissingDependencyError: ``tensorboardX`` is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> board = TensorBoard(folder, histogram_freq=1)
        >>> _ = model.fit(np.ones((8, 4)), np.ones(8), verbose=0, callbacks=[board])
        >>> len(list(folder.glob("train/events.*")))
        1
    """

    def __init__(
        self,
        log_dir: str | os.PathLike[str] = "logs",
        histogram_freq: int = 0,
        write_graph: bool = True,
        write_images: bool = False,
        write_steps_per_second: bool = False,
        update_freq: str | int = "epoch",
        profile_batch: int | tuple[int, int] = 0,
        embeddings_freq: int = 0,
        embeddings_metadata: str | Mapping[str, str] | None = None,
        *,
        every: int | str | Every | None = None,
    ):
        self._write = require("tensorboardX", "TensorBoard", _REASON, extra=_EXTRA)
        check = functools.partial(check_count, "TensorBoard", error=CallbackError)
        self.log_dir = check_path(
            "TensorBoard", "log_dir", log_dir, error=CallbackError
        )
        self.histogram_freq = check("histogram_freq", histogram_freq, 0)
        self.embeddings_freq = check("embeddings_freq", embeddings_freq, 0)
        self.embeddings_metadata = embeddings_metadata
        self.write_graph, self.write_images = write_graph, write_images
        if write_images:
            require("PIL.Image", "TensorBoard", "images need Pillow", package="pillow")
        self.write_steps_per_second = write_steps_per_second
        self.update_freq: int | None = None  # in steps
        if update_freq != "epoch":
            steps = 1 if update_freq == "batch" else update_freq
            self.update_freq = check("update_freq", steps)
        last = profile_batch
        first, last = last if isinstance(last, tuple | list) else (last, last)
        first, last = (check("profile_batch", n, 0) for n in (first, last))
        if last < first:
            raise CallbackError("TensorBoard", f"no step is in {profile_batch!r}")
        self._profiled = range(first, last + 1) if first else range(0)
        self.light = not (self.histogram_freq or write_images or self.embeddings_freq)
        self.every = check_every(
            "TensorBoard", self.update_freq if every is None else every
        )
        within = self.every is not None and self.every.unit != "epochs"
        if every is not None and (self.update_freq or self._profiled):
            raise CallbackError(
                "TensorBoard",
                "give every, or update_freq and profile_batch, and not both",
            )
        if self._profiled:
            self.every = Every(steps=1)
            self.on_train_batch_begin = self._begin_profile
        if self._profiled or within:
            self.on_train_batch_end = self._after_step
        self._writers: dict[str, Any] = {}
        self._restored = self._training = self._profiling = False
        self._before = self._done = 0  # steps of the epochs before, and of this one
        self._began = 0.0

    # ------------------------------------------------------------------ the run
    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._training = True
        if not self._restored:
            self._before = 0
        self._restored = False
        if self.write_graph:
            self._draw()

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._done, self._began = 0, time.perf_counter()

    def on_chunk_end(self, step: int, logs: dict[str, Any] | None = None) -> None:
        self._done = step

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        seconds = time.perf_counter() - self._began
        self._before += self._done
        values = dict(logs or {})
        values.setdefault("learning_rate", current_rate(self.model.optimizer))
        if self.write_steps_per_second:
            values["steps_per_second"] = self._done / seconds
        self._scalars("epoch_", values, epoch)
        writer = self._writer("train")
        shown = self.histogram_freq and epoch % self.histogram_freq == 0
        for path, value in self._weights():
            if shown:
                writer.add_histogram(f"{path}/histogram", value, epoch)
            if self.write_images and (shown or not self.histogram_freq):
                writer.add_image(f"{path}/image", _image(value), epoch)
        if self.embeddings_freq and epoch % self.embeddings_freq == 0:
            self._project(writer, epoch)
        for writer in self._writers.values():
            writer.flush()

    def on_test_end(self, logs: dict[str, Any] | None = None) -> None:
        if self._training:  # a validation: its values are in the epoch's logs
            return
        writer = self._writer("validation")
        steps = int(getattr(self.model.optimizer, "iterations", 0) or 0)
        for name, value in (logs or {}).items():
            if np.ndim(value) == 0:
                writer.add_scalar(f"evaluation_{name}_vs_iterations", value, steps)
        self._close()

    def on_exit(self, error: BaseException | None = None) -> None:
        self._training = False
        self._end_profile()
        self._close()

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self._before}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._before, self._restored = state["steps"], True

    # ------------------------------------------------------------------ single steps
    def _begin_profile(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        if self.writes and self._before + batch + 1 == self._profiled[0]:
            jax.profiler.start_trace(self.log_dir)
            self._profiling = True

    def _after_step(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        step = self._before + batch + 1
        if self._profiled and step == self._profiled[-1]:
            self._end_profile()
        if not self._profiled or (
            self.update_freq and (batch + 1) % self.update_freq == 0
        ):
            self._scalars("batch_", logs or {}, step)

    def _end_profile(self) -> None:
        if self._profiling:
            self._profiling = False
            jax.profiler.stop_trace()

    # ------------------------------------------------------------------ writing
    def _writer(self, run: str) -> Any:
        if not self.writes:
            return _NoWriter()
        if run not in self._writers:
            folder = os.path.join(self.log_dir, run)
            with telling_refusals("TensorBoard", folder):
                self._writers[run] = self._write.SummaryWriter(folder)
        return self._writers[run]

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _scalars(self, prefix: str, values: Mapping[str, Any], step: int) -> None:
        for name, value in values.items():
            if np.ndim(value):  # one value for each class, say
                continue
            run = "validation" if name.startswith("val_") else "train"
            tag = prefix + name.removeprefix("val_")
            self._writer(run).add_scalar(tag, float(value), step)

    def _weights(self) -> list[tuple[str, np.ndarray]]:
        if self.light:
            return []
        return [
            (path, np.asarray(to_host(weight.get_value()), np.float32))
            for path, weight, _ in iter_weights(self.model)
        ]

    def _project(self, writer: Any, epoch: int) -> None:
        files = self.embeddings_metadata
        for path, table in self._weights():
            layer, _, name = path.rpartition("/")
            if name != "embeddings":
                continue
            file = files.get(layer) if isinstance(files, Mapping) else files
            labels = None
            if file is not None:
                labels = read_text(file, "TensorBoard", _MOST_BYTES).splitlines()
                if len(labels) != len(table):
                    raise CallbackError(
                        "TensorBoard",
                        f"{file} must have a line for each of the {len(table)} rows of "
                        f"{layer!r}, it has {len(labels)}",
                    )
            tag = f"{layer}_{epoch}"
            writer.add_embedding(table, labels, global_step=epoch, tag=tag)

    def _draw(self) -> None:
        """The calls of a functional model, in TensorFlow's form of graphs."""
        graph = getattr(self.model, "graph", None)
        if graph is None:
            lines: list[str] = []
            self.model.summary(print_fn=lambda text, **_: lines.append(text))
            text = "\n".join(lines).replace("\n", "\n    ")
            self._writer("train").add_text("model", f"    {text}")
            return
        proto = "tensorboardX.proto"
        nodes = require(f"{proto}.node_def_pb2", "TensorBoard", _REASON, extra=_EXTRA)
        graphs = require(f"{proto}.graph_pb2", "TensorBoard", _REASON, extra=_EXTRA)
        drawn = [nodes.NodeDef(name=name, op="Input") for name in graph.input_names]
        names = [f"{i}_{node.name}" for i, node in enumerate(graph.nodes)]
        for name, node in zip(names, graph.nodes, strict=True):
            refs = [leaf for leaf in node.leaves if isinstance(leaf, Ref)]
            sources = [
                graph.input_names[ref.index] if ref.node < 0 else names[ref.node]
                for ref in refs
            ]
            op = node.target
            if isinstance(op, str):
                op = type(vars(self.model.nodes)[op]).__name__
            else:
                op = op.name
            drawn.append(nodes.NodeDef(name=name, op=op, input=sources))
        writer = self._writer("train").file_writer
        writer.add_onnx_graph(graphs.GraphDef(node=drawn))  # writes any graph


class _NoWriter:
    """Takes whatever a writer takes, in a process that does not write."""

    def __getattr__(self, name: str) -> _NoWriter:
        return self

    def __call__(self, *_: Any, **__: Any) -> _NoWriter:
        return self


def _image(value: np.ndarray) -> np.ndarray:
    """A weight in shades of grey: ``[1, rows, last axis]`` from 0 to 1."""
    flat = value.reshape(-1, value.shape[-1]) if value.ndim else value.reshape(1, 1)
    low, high = float(flat.min()), float(flat.max())
    return ((flat - low) / (high - low or 1.0))[None]
