"""What a model is, and what it takes: ``model.info()`` and ``model.plan()``."""

from __future__ import annotations

from typing import Any

from exburn.models.arguments import first_batch, positive
from exburn.models.encoding import encode_dataset, read_dataset
from exburn.models.information import ModelInfo, describe
from exburn.models.planning import (
    Plan,
    input_specs,
    make_plan,
    with_rows,
    with_targets,
)
from exburn.training.overrides import overrides
from exburn.training.trainer import Trainer

__all__ = ["Inspection", "ModelInfo", "Plan"]


class Inspection:
    """Figures about a model; mixed into ``Model``."""

    compiled: bool
    _predictor: Any
    _require_built: Any
    _output_names_of: Any
    _untrainable: Any

    def info(self) -> ModelInfo:
        """What the model is: parameters, layers, bytes, loss, optimizer, device.

        Raises:
            NotBuiltError: The model has no weights yet.

        Example:
            >>> import exburn
            >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
            >>> info = model.info()
            >>> info.parameters, info["bytes"]
            (15, {'float32': 60})
        """
        self._require_built("info")
        return describe(self)

    def plan(
        self,
        batch_size: int = 32,
        x: Any = None,
        y: Any = None,
        *,
        largest: bool = True,
    ) -> Plan:
        """What a step takes, by XLA's analysis of the compiled program; nothing runs.

        A training step if ``compile`` gave a loss, else one of ``predict``, as for
        weights in few bits, which do not train. What the allocator and libraries such
        as cuDNN need comes on top: spare a tenth.

        Args:
            batch_size: Rows of the step.
            x, y: Data whose shapes and dtypes are meant; by default those of the last
                ``fit``, or the model's own inputs.
            largest: Whether the largest batch that fits is looked for, which compiles
                two to five more programs.

        Raises:
            NotBuiltError: The model has no shapes yet, and no ``x`` is given.
            ArgumentError: A size of the inputs is unknown, or targets are not guessed.

        Example:
            >>> import exburn
            >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
            >>> model.plan(8, largest=False).flops
            192.0
        """
        batch_size = int(positive("plan", "batch_size", batch_size, 32))
        trainer, kind, batch = self._planned(batch_size, x, y)
        return make_plan(trainer, kind, batch, batch_size, largest)

    def _planned(self, rows: int, x: Any, y: Any) -> tuple[Trainer, str, tuple]:
        """The trainer, prepared; the program; and specs of a batch."""
        trainer = self._predictor()
        trains = self.compiled and trainer.objective.wants_targets
        trains = trains or overrides(self, "train_step")
        kind = "train" if trains and not self._untrainable() else "predict"
        given = None
        if x is not None:
            dataset = read_dataset(self, x, y, op="plan")
            dataset = encode_dataset(self, dataset, op="plan", batch_size=rows)
            given = first_batch(dataset, trainer.seed)
        elif kind in trainer.batch_specs:
            given = trainer.batch_specs[kind]
        if given is None:
            self._require_built("plan")
            given = (input_specs(self), None, None)
        batch = with_rows(given, rows)
        if kind == "train" and batch[1] is None and trainer.objective.wants_targets:
            batch = with_targets(trainer, self._output_names_of, batch)
        else:
            trainer.prepare(batch, names=self._output_names_of, kind=kind)
        return trainer, kind, batch
