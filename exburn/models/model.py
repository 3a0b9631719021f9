"""The model: a network with training on top, and the list of its methods."""

from __future__ import annotations

import warnings
from typing import Any, Self

from exburn.callbacks.contract import History
from exburn.core import lazy_names
from exburn.core.methods import with_methods
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.models import (
    adapting,
    averaging,
    batches,
    compiling,
    copies,
    exporting,
    fitting,
    freezing,
    generation,
    hooks,
    improving,
    inferring,
    inspection,
    judging,
    lm_eval,
    looping,
    own_steps,
    preparing,
    quantizing,
    reporting,
    saving,
    state_tree,
)
from exburn.models import options as training_options
from exburn.models.changes import records
from exburn.models.compiling import is_eager
from exburn.models.lora import active_name, adapter_names
from exburn.models.network import Network
from exburn.models.pickling import reduce_model
from exburn.models.private_training import PrivacySpent, privacy_spent
from exburn.models.session import (
    require_hook,
    require_idle,
    require_trainer,
)
from exburn.module.selection import frozen_paths
from exburn.module.variable import Static
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.quantizers import QuantizationReport
from exburn.text import Tokenizer
from exburn.training.objective.compile_metrics import CompileMetrics


@register_builtin
@with_methods
class Model(Network):
    """A model from symbols, ``Model(inputs, outputs)``, or a subclass with ``call``.

    Args:
        inputs: A symbol from ``Input``, or a (nested) list or dict of them.
        outputs: Symbols computed from the inputs, in the structure to be returned. On
            arrays a list of one returns what is in it.
        name: Name of the model.
        trainable: Whether training changes its weights.
        dtype: Precision policy of the model and of all layers in it that were given
            none of their own.

    Raises:
        GraphError: The outputs do not depend on the inputs alone, or names collide.

    Example:
        >>> from exburn.layers import Dense, Input
        >>> x = Input((4,))
        >>> model = Model(x, Dense(2)(x))
        >>> model.count_params(), model.output_shape
        (10, (None, 2))
    """

    _keras_name = "Functional"  # what files of Keras' call a model made of symbols

    _report: Any = None  # of ``quantize``, if that made it
    _compression: Any = None  # the report of ``compress``, if that made it
    _generation: Any = None  # what its folder says of writing, if it is of one

    # Its methods are functions of the files that they belong to: see docs/layout.md.
    compile = compiling.compile
    fit, load_checkpoint = fitting.fit, fitting.load_checkpoint
    training, improve = looping.training, improving.improve
    evaluate, predict = inferring.evaluate, inferring.predict
    generate, chat = generation.generate, generation.chat
    evaluate_text, as_lm_eval = judging.evaluate_text, lm_eval.as_lm_eval
    train_on_batch, test_on_batch = batches.train_on_batch, batches.test_on_batch
    predict_on_batch, reset_metrics = batches.predict_on_batch, batches.reset_metrics
    options = training_options.options

    train_step, test_step = own_steps.train_step, own_steps.test_step
    predict_step = own_steps.predict_step
    compute_loss, compute_metrics = own_steps.compute_loss, own_steps.compute_metrics
    compute_loss_and_updates = own_steps.compute_loss_and_updates
    stateless_compute_loss = own_steps.stateless_compute_loss
    get_metrics_result = own_steps.get_metrics_result
    match_objective = own_steps.match_objective

    save, to_json, summary = saving.save, saving.to_json, inspection.summary
    save_weights, load_weights = saving.save_weights, saving.load_weights
    get_compile_config = saving.get_compile_config
    compile_from_config = saving.compile_from_config
    get_state_tree, set_state_tree = (
        state_tree.get_state_tree,
        state_tree.set_state_tree,
    )
    export, serve = exporting.export, lazy_names.serve

    freeze, unfreeze = freezing.freeze, freezing.unfreeze
    is_frozen, remat = freezing.is_frozen, freezing.remat
    add_lora, merge_lora = adapting.add_lora, adapting.merge_lora
    save_lora, load_lora = adapting.save_lora, adapting.load_lora
    unmerge_lora, set_adapter = adapting.unmerge_lora, adapting.set_adapter
    remove_adapter = adapting.remove_adapter
    repeat_changes = adapting.repeat_changes
    quantize = quantizing.quantize  # type: ignore[assignment]  # a layer, in place
    compress = lazy_names.compress
    quantization_summary = quantizing.quantization_summary
    get_quantization_layer_structure = quantizing.get_quantization_layer_structure
    averaged_weights = averaging.averaged_weights
    update_batch_statistics = averaging.update_batch_statistics

    info, plan = inspection.info, inspection.plan
    find_learning_rate = lazy_names.find_learning_rate
    find_batch_size, profile = lazy_names.find_batch_size, lazy_names.profile
    explain = lazy_names.explain
    curvature = lazy_names.curvature
    influence = lazy_names.influence
    uncertainty = lazy_names.uncertainty
    compile_report, explain_plan = reporting.compile_report, reporting.explain_plan
    sharding_summary = reporting.sharding_summary
    capture, on_output = hooks.capture, hooks.on_output
    to_device = hooks.to_device

    # What rooms below this one call, which know no models.
    _measure = hooks.measure
    _use_average = averaging.use_average
    _check_statistics = averaging.check_statistics
    _on_device = preparing.on_device
    _training_state = saving.training_state
    _set_training_state = saving.set_training_state
    _tokenizer_state = saving.tokenizer_state
    _set_tokenizer_state = saving.set_tokenizer_state

    def _with_graph(self, inputs: Any, outputs: Any) -> Model:
        """A model of the same name and kind, with another graph."""
        return Model(inputs, outputs, name=self.name)

    @property
    def tokenizer(self) -> Any:
        """The ``exburn.text.Tokenizer``, with which ``generate`` takes texts.

        It goes into the model's file.

        Raises:
            ArgumentError: It is set to something else.
        """
        stored = vars(self).get("_tokenizer")
        return None if stored is None else stored.value

    @tokenizer.setter
    def tokenizer(self, value: Any) -> None:
        if value is not None and not isinstance(value, Tokenizer):
            raise ArgumentError(
                "tokenizer",
                f"an exburn.text.Tokenizer or None is needed, received {value!r}",
                hint="exburn.text.Tokenizer.load(path) reads a tokenizer.json.",
            )
        if value != self.tokenizer:
            self._tokenizer = Static(value)

    def set_weights(self, weights: Any) -> None:
        """Sets all weights; while another thread trains the model they would be lost.

        Args:
            weights: Arrays in the order of ``get_weights``.

        Raises:
            BusyError: The model is being trained, and this is not in a hook.
        """
        require_hook(self, "set_weights")
        super().set_weights(weights)

    def clone(self) -> Self:
        """A copy with the same configuration and weights, sharing no arrays.

        It is not compiled, and lies on the same mesh, if the model has one.

        Raises:
            ArgumentError: The configuration cannot be described (see ``register``).
        """
        copied = super().clone()
        copied._training_session.distribution = self._training_session.distribution
        copied.tokenizer = self.tokenizer
        return copied

    def __deepcopy__(self, memo):
        memo[id(self)] = copied = self.clone()
        copies.compile_as_copy(copied, self, memo)
        return copied

    def __reduce_ex__(self, protocol):
        # The metadata hold functions, which no pickle can.
        return reduce_model(self) if self.built else super().__reduce_ex__(protocol)

    @property
    def compiled(self) -> bool:
        """Whether ``compile`` was called."""
        return self._training_session.settings is not None

    @property
    def optimizer(self) -> Optimizer | Any:  # None before compile
        """The optimizer; its ``learning_rate`` can be read and set, also in hooks.

        It can be replaced, by one whose state begins anew.
        """
        trainer = self._training_session.trainer
        return None if trainer is None else trainer.holder.optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Any) -> None:
        require_idle(self, "optimizer")
        compiling.replace_optimizer(self, optimizer)

    @property
    def loss(self):
        """The loss as given to ``compile``, or what a class of one's own keeps here.

        As in Keras, setting it does not change what the model is compiled for.
        """
        return self._training_session.loss

    @loss.setter
    def loss(self, loss: Any) -> None:
        self._training_session.loss = loss
        if self.compiled and self.own_compute_loss is None:
            warnings.warn(
                "model.loss was set, but the model trains with the loss it was "
                "compiled with: model.compile(..., loss=...)",
                stacklevel=3,  # past __setattr__
            )

    @property
    def loss_weights(self) -> Any:
        """Factor of each output's loss; set, they hold from the next chunk on.

        Raises:
            NotCompiledError: They are set before ``compile``.
            ArgumentError: They are not finite numbers, or too many.
        """
        settings = self._training_session.settings
        return None if settings is None else settings["loss_weights"]

    @loss_weights.setter
    def loss_weights(self, loss_weights: Any) -> None:
        trainer = require_trainer(self, "loss_weights")
        trainer.preparer.objective.loss_weights = loss_weights
        self._training_session.settings["loss_weights"] = loss_weights

    @property
    def history(self) -> History | Any:  # None before fit
        """The record of the last ``fit``."""
        return self._training_session.history

    @history.setter
    def history(self, history: History) -> None:
        self._training_session.history = history

    @property
    def privacy(self) -> PrivacySpent | None:
        """What ``compile(privacy=…)`` has spent of the rows' privacy: ``epsilon`` …"""
        return privacy_spent(self)

    @property
    def run_eagerly(self) -> bool:
        """Whether the model runs without being compiled, to debug; can be set."""
        trainer = self._training_session.trainer
        return trainer is not None and trainer.preparer.eager

    @run_eagerly.setter
    def run_eagerly(self, value: bool) -> None:
        require_idle(self, "run_eagerly")
        caches = require_trainer(self, "run_eagerly").preparer.program_cache
        caches.eager = is_eager(value)

    @property
    def jit_compile(self) -> bool:
        """The opposite of ``run_eagerly``."""
        return not self.run_eagerly

    @jit_compile.setter
    def jit_compile(self, value: bool | str) -> None:
        self.run_eagerly = is_eager(value, "jit_compile")

    @property
    def metrics_names(self) -> list[str]:
        """Names of the values that ``evaluate`` returns; none before ``compile``.

        Keras lists the names of ``metrics``.
        """
        trainer = self._training_session.trainer
        return [] if trainer is None else trainer.preparer.objective.names

    @property
    def metrics(self) -> list[Any]:
        """Trackers of the loss, the metrics of ``compile``, those of layers; may be
        overridden.

        The metrics of ``compile`` are one, ``compile_metrics``, as in Keras: its
        ``metrics`` are those that were given, and ``result()`` is a dict.
        """
        return compiling.list_metrics(self)

    @property
    def _compile_metrics(self) -> CompileMetrics | None:
        """Keras' name of the metrics of ``compile``."""
        return compiling.compile_metrics(self)

    @property
    def _loss_tracker(self) -> Any:
        """Keras' name of the first metric, for steps of one's own."""
        run = self._training_session
        return run.trainer and run.loss_trackers(run.trainer.preparer.objective)["loss"]

    @property
    def trace_counts(self) -> dict[str, int]:
        """How often each program was traced: ``{"train": 1, "evaluate": 1, …}``."""
        trainer = self._training_session.trainer
        return (
            {} if trainer is None else dict(trainer.preparer.program_cache.trace_counts)
        )

    @property
    def stop_training(self) -> bool:
        """Set to True in a callback to end training."""
        return self._training_session.stop["training"]

    @stop_training.setter
    def stop_training(self, value: bool) -> None:
        self._training_session.stop["training"] = bool(value)

    @property
    def stop_evaluating(self) -> bool:
        """Set to True in a callback to end evaluating."""
        return self._training_session.stop["evaluating"]

    @stop_evaluating.setter
    def stop_evaluating(self, value: bool) -> None:
        self._training_session.stop["evaluating"] = bool(value)

    @property
    def stop_predicting(self) -> bool:
        """Set to True in a callback to end predicting."""
        return self._training_session.stop["predicting"]

    @stop_predicting.setter
    def stop_predicting(self, value: bool) -> None:
        self._training_session.stop["predicting"] = bool(value)

    @property
    def logged_names(self) -> list[str] | None:
        """What is logged of a subclass that overrides ``metrics``, else ``None``."""
        if type(self).metrics is Model.metrics:
            return None
        return [name for _, name in own_steps.metrics_with_names(self)]

    @property
    def own_compute_loss(self):
        """The ``compute_loss`` of a subclass that overrides it, else ``None``."""
        own = type(self).compute_loss is not own_steps.compute_loss
        return self.compute_loss if own else None

    @property
    def changes(self) -> list[dict[str, Any]]:
        """Records of ``quantize``, ``prune`` and ``add_lora``, JSON-able."""
        return records(self)

    @property
    def adapter_names(self) -> list[str]:
        """Names of the adapters that ``add_lora`` and its kin have added."""
        return adapter_names(self)

    @property
    def active_adapter(self) -> str | None:
        """The name of the adapter that is computed and trained; ``None`` if none is."""
        return active_name(self)

    @property
    def frozen_layers(self) -> list[str]:
        """Paths of the layers that training leaves alone, those within them too."""
        return frozen_paths(self)

    @property
    def quantization_report(self) -> QuantizationReport | None:
        """What ``quantize`` did to make this model; None of one that was loaded."""
        return None if self._report is None else self._report.value

    @property
    def compression_report(self) -> Any:
        """What ``compress`` tried to make this model; None of one that was loaded."""
        return None if self._compression is None else self._compression.value


register_builtin(Model, "Functional")  # Keras' class of a model made of symbols
