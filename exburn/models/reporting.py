"""What was compiled, and how training was planned: reports for a user."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import jax
from rich.table import Table
from rich.text import Text

from exburn.config import is_flash_attention_enabled
from exburn.core.printing import Plain, page_text
from exburn.distribution.summary import ShardingSummary, weight_layouts
from exburn.errors import ArgumentError
from exburn.models.network import Network
from exburn.models.session import require_trainer
from exburn.module.traversal import iter_modules, iter_weights
from exburn.runtime.compilation_cache import compilation_cache
from exburn.runtime.device import chosen_platform
from exburn.runtime.kernels.conv import dispatch
from exburn.runtime.kernels.dispatch import why_not
from exburn.runtime.sharding.arrays import held_bytes
from exburn.runtime.xla_options import FEWER_PRODUCTS, SCHEDULER, TRITON, YNNPACK
from exburn.training.compile_log import Compilation
from exburn.training.feed.plan import Decision
from exburn.training.placement import placement_for

# Words of so many letters, such as switches, which are copied, are printed whole.
_WORDS = (20, 34)


class _Listing(list):
    """A list that prints as a table."""

    title: Any = ""
    kind: Any = None

    def __rich__(self) -> Plain:
        table = Table(title=Text(str(self.title), "table.title"), title_justify="left")
        items = [dataclasses.asdict(item).items() for item in self]
        rows = [[_text(name, value) for name, value in item] for item in items]
        for at, field in enumerate(dataclasses.fields(self.kind)):
            words = [word for row in rows for word in row[at].split()]
            longest = max(map(len, words), default=0)
            width = min(longest, _WORDS[1]) if longest > _WORDS[0] else None
            table.add_column(field.name, overflow="fold", width=width)
        for row in rows:
            table.add_row(*row)
        return Plain(table)

    def __str__(self) -> str:
        return page_text(self, 100)

    __repr__ = __str__


class CompileReport(_Listing):
    """The compilations of a model since ``compile``, in order."""

    kind = Compilation

    @property
    def title(self) -> str:
        seconds = sum(entry.seconds for entry in self)
        cache = compilation_cache()
        where = f"cache on disk: {cache}" if cache else "no cache on disk"
        return f"{len(self)} compilations, {seconds:.2f} s ({where})"


class ExecutionPlan(_Listing):
    """What was chosen for the last ``fit``, why, and how to choose otherwise."""

    kind = Decision
    title = "How the last fit ran"


def compile_report(self: Network) -> CompileReport:
    """What was compiled since ``compile``: program, reason, seconds and time.

    Seconds run from the call to its dispatch. A program that was found in the cache
    on disk is read in less, but is traced all the same.

    Raises:
        NotCompiledError: ``compile`` was not called.

    Example:
        >>> import numpy as np, exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model.compile("sgd", loss="mse")
        >>> history = model.fit(np.ones((64, 4)), np.ones((64, 3)), verbose=0)
        >>> [(entry.program, entry.reason) for entry in model.compile_report()]
        [('train', 'first use')]
    """
    return CompileReport(
        require_trainer(
            self, "compile_report"
        ).preparer.program_cache.compilations.entries
    )


def explain_plan(self: Network) -> ExecutionPlan:
    """What ExBurn chose for the last ``fit``, with the reason and the switch.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ArgumentError: ``fit`` has not run yet.

    Example:
        >>> import numpy as np, exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model.compile("sgd", loss="mse")
        >>> history = model.fit(np.ones((64, 4)), np.ones((64, 3)), verbose=0)
        >>> [decision.choice for decision in model.explain_plan()][:2]
        ['data', 'steps per call']
    """
    trainer = require_trainer(self, "explain_plan")
    decisions = trainer.decisions
    if not decisions:
        raise ArgumentError(
            "explain_plan", "nothing was planned yet", hint="Call fit first."
        )
    modules = [module for _, module in iter_modules(self)]
    options = trainer.preparer.program_cache.compiler_options() or {}
    if any(hasattr(module, "flash_attention") for module in modules):
        decisions = [*decisions, _attention()]
    if any(hasattr(module, "kernel_size") for module in modules):
        decisions = [*decisions, _convolutions(options)]
    if trainer.preparer.objective.by_tokens:
        decisions = [*decisions, _BY_TOKENS]
    if trainer.preparer.objective.without_scores:
        decisions = [*decisions, _WITHOUT_SCORES]
    with trainer.holder.placement.scope():
        of_xla = [_kernels(), _schedules(options), _trials(options)]
    return ExecutionPlan([*decisions, *of_xla])


_BY_TOKENS = Decision(
    "loss of a step",
    "by tokens",
    "sums of losses and of weights over all batches and devices of an update are "
    "divided once",
    'compile(accumulate="means")',
)


_WITHOUT_SCORES = Decision(
    "scores of the last layer",
    "a few rows at a time",
    "one sparse cross-entropy and its metrics read them, and all at once they would "
    "be many",
    "config.disable_head_loss()",
)


def sharding_summary(self: Network) -> ShardingSummary:
    """Where each weight lies on the mesh in force, and what each device holds.

    The mesh is that of ``compile``, else that of ``distribution.set_distribution``.
    Nothing is moved.

    Returns:
        A list of records with ``path``, ``shape``, ``layout``, ``bytes`` (of a device)
        and ``rule``, which prints as a table with totals. It is empty before the model
        is built.

    Raises:
        LayoutError: A rule matches no weight, or a size cannot be divided evenly.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(8)])
        >>> layout = {"dense/kernel": (None, "model")}
        >>> model.compile("sgd", "mse", mesh={"data": 1, "model": 1}, layout=layout)
        >>> summary = model.sharding_summary()
        >>> summary[0].layout, summary[0].bytes, summary[0].rule
        ((None, 'model'), 128, 'dense/kernel')
        >>> summary.bytes_per_device, summary.replicated_bytes
        (160, 32)
    """
    run = self._training_session
    distribution = run.distribution_in_force
    weights = [(path, weight) for path, weight, _ in iter_weights(self)]
    where = "One device" if distribution is None else str(distribution)
    if not self.built:
        return ShardingSummary([], where)
    specs = {p: jax.ShapeDtypeStruct(w.shape, w.dtype) for p, w in weights}
    placement = placement_for(distribution)
    placement.check(self, specs)
    slots = None
    if run.optimizer is not None and run.trainer is not None:
        optimizer = run.trainer.holder.optimizer
        trained = {
            path: specs[path] for path, _, learns in iter_weights(self) if learns
        }
        slots = held_bytes(placement.slot_specs(optimizer.init, trained))
    return ShardingSummary(weight_layouts(specs.items(), distribution), where, slots)


def _attention() -> Decision:
    platform, asked = jax.default_backend(), is_flash_attention_enabled()
    flash, reason = platform == "gpu", f"the device is a {platform}"
    if flash and asked is False:
        flash, reason = False, "config.disable_flash_attention() was called"
    elif flash:
        reason = "the device is a GPU; float16 or bfloat16, no dropout of weights"
    return Decision(
        "attention",
        "cuDNN's flash attention where it can run" if flash else "matrix products",
        reason,
        "flash_attention= of the layer, config.disable_flash_attention()",
    )


def _convolutions(options: dict[str, Any]) -> Decision:
    reason = dispatch.why_not()
    taken = "XLA's" if reason else "forms of ExBurn, where XLA's are slow"
    return Decision(
        "convolutions",
        f"{taken}; none of YNNPACK's" if YNNPACK in options else taken,
        reason or f"the device is a {chosen_platform()}",
        "XLA_FLAGS, see docs/planning.md; config.disable_convolution_forms()",
    )


def _kernels() -> Decision:
    reason = why_not()
    return Decision(
        "large half-precision arrays",
        "kernels of XLA" if reason else "kernels of ExBurn, where it has some",
        reason or "NVIDIA GPUs",
        "config.disable_gpu_kernels()",
    )


def _schedules(options: dict[str, Any]) -> Decision:
    platform, overlaps = jax.default_backend(), options.get(SCHEDULER)
    reason = "the model runs on several" if overlaps else "the model runs on one"
    taken = "for several GPUs, whose sums are hidden" if overlaps else "for one GPU"
    if overlaps is None:
        taken, reason = "as XLA has them", "an older JAX, or XLA_FLAGS"
    return Decision(
        "schedules",
        taken,
        reason if platform == "gpu" else f"the device is a {platform}",
        "XLA_FLAGS, see docs/planning.md",
    )


def _trials(options: dict[str, Any]) -> Decision:
    platform = jax.default_backend()
    few, none = FEWER_PRODUCTS in options, TRITON in options
    reason = "a small model" if few else "a large model, an older JAX, or XLA_FLAGS"
    if none:
        reason += ", of convolutions"
    tried = "two of cuBLAS'" if few else "all of cuBLAS'"
    tried += f", {'none' if none else 'all'} of Triton's"
    return Decision(
        "products that XLA tries",
        tried if few or none else "all that it has",
        reason if platform == "gpu" else f"the device is a {platform}",
        f"--{FEWER_PRODUCTS}=n, --{TRITON}=true in XLA_FLAGS",
    )


def _text(name: str, value: Any) -> str:
    if name == "at":
        return time.strftime("%H:%M:%S", time.localtime(value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)
