"""Every numeric argument of the public classes, each in a small model to be swept.

A ``Subject`` makes models that differ in one argument. ``difference`` trains each of
them alone, and all of them as the lanes of one sweep.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import exburn
from exburn import constraints, initializers, layers, losses, optimizers, regularizers
from exburn.applications import GPT2
from exburn.errors import ExBurnError
from exburn.module.signature import init_names
from exburn.optimizers import schedules
from exburn.text import Document, DocumentPair, PackedPairs
from exburn.tuning import sweep

ROWS, BATCH = 12, 4
FIT = {"epochs": 2, "batch_size": BATCH, "verbose": 0}
RNG = np.random.default_rng(0)
_TRIES = 3  # values that are trained with, of an argument that changes nothing
NO_OPTIONS = {"name", "dtype", "trainable", "autocast", "learning_rate"}


@dataclasses.dataclass
class Subject:
    """A class, and models that have one of it.

    Attributes:
        name: The class's.
        options: Its numeric arguments: name → other values that may work.
        path: What a sweep calls an argument.
        make: Makes a compiled model; takes the argument's name and value, or nothing.
        x, y: What the models are trained on.
        fit: How.
    """

    name: str
    options: dict[str, list[Any]]
    path: Callable[[str], str]
    make: Callable[..., Any]
    x: Any
    y: Any
    fit: dict[str, Any] = dataclasses.field(default_factory=lambda: FIT)


# ---------------------------------------------------------------------- values
def other_values(own: Any) -> list[Any]:
    """Values beside an argument's own that may work, too."""
    if isinstance(own, bool) or own is None:
        return []
    if isinstance(own, int | np.integer):
        near = [own + 1, own * 2, own + 2, own - 1, 1, 2, 0]
        return [int(value) for value in dict.fromkeys(near) if value != own]
    if isinstance(own, float | np.floating):
        near = [own * 0.5, own * 1.5, own + 0.25, own - 0.25, 0.5, 0.1, 1.0]
        return [float(value) for value in dict.fromkeys(near) if value != own]
    if isinstance(own, list | tuple) and own:
        columns = [other_values(value) for value in own]
        count = max(map(len, columns))
        if count:  # entries that are no numbers stay as they are
            rows = [
                [column[at % len(column)] if column else value for at in range(count)]
                for column, value in zip(columns, own, strict=True)
            ]
            return [list(row) for row in zip(*rows, strict=True)]
    return []


def numbers_of(cls: type, arguments: dict[str, Any], unset: dict) -> dict[str, list]:
    """The numeric arguments of a constructor, each with other values.

    Args:
        cls: The class.
        arguments: What it is given.
        unset: Values of those that are not set by default.
    """
    own = {
        name: p.default
        for base in reversed(cls.__mro__)
        if "__init__" in vars(base)
        for name, p in inspect.signature(base.__init__).parameters.items()
    }
    found = {}
    for name in init_names(cls):
        if name in NO_OPTIONS:
            continue
        value = arguments.get(name, own.get(name))
        values = unset.get(name, []) if value is None else other_values(value)
        if values:
            found[name] = values
    return found


# ---------------------------------------------------------------------- layers
SHAPES = {"1D": (8, 3), "2D": (8, 8, 3), "3D": (4, 4, 4, 2)}
IMAGE, FLAT, STEPS = (8, 8, 3), (6,), (5, 4)
UNSET_OF_LAYERS = {
    "seed": [3],
    "max_value": [0.5],
    "clipnorm": [0.1],
    "value_dim": [2],
    "fill_value": [0.5],
    "bias_constraint": [],
    "noise_shape": [],
    "num_kv_heads": [1],
}
_NUMBERS = {"units": 3, "filters": 2, "kernel_size": 2, "rate": 0.3, "size": 2}
_CELL = {"units": 3}
REQUIRED: dict[str, tuple[dict[str, Any], Any]] = {  # arguments, shape of a row
    "ActivityRegularization": ({"l1": 0.1, "l2": 0.2}, FLAT),
    "AdaptiveAveragePooling1D": ({"output_size": 2}, SHAPES["1D"]),
    "AdaptiveAveragePooling2D": ({"output_size": 2}, IMAGE),
    "AdaptiveAveragePooling3D": ({"output_size": 2}, SHAPES["3D"]),
    "AdaptiveMaxPooling1D": ({"output_size": 2}, SHAPES["1D"]),
    "AdaptiveMaxPooling2D": ({"output_size": 2}, IMAGE),
    "AdaptiveMaxPooling3D": ({"output_size": 2}, SHAPES["3D"]),
    "AlphaDropout": ({"rate": 0.3}, FLAT),
    "AugMix": ({"num_chains": 1, "chain_depth": 1}, IMAGE),  # each link is a program
    "Conv1DTranspose": ({"filters": 2, "kernel_size": 2}, SHAPES["1D"]),
    "Conv2DTranspose": ({"filters": 2, "kernel_size": 2}, IMAGE),
    "Conv3DTranspose": ({"filters": 2, "kernel_size": 2}, SHAPES["3D"]),
    "BatchNormalization": ({}, FLAT),
    "CategoryEncoding": ({"num_tokens": 6, "output_mode": "multi_hot"}, "ids"),
    "CenterCrop": ({"height": 4, "width": 5}, IMAGE),
    "ConvLSTM1D": ({"filters": 2, "kernel_size": 2}, (3, 6, 2)),
    "ConvLSTM2D": ({"filters": 2, "kernel_size": 2}, (3, 6, 6, 2)),
    "ConvLSTM3D": ({"filters": 2, "kernel_size": 2}, (2, 4, 4, 4, 2)),
    "Dense": ({"units": 3}, FLAT),
    "Discretization": ({"bin_boundaries": [-1.0, 0.0, 1.0]}, FLAT),
    "Dropout": ({"rate": 0.3}, FLAT),
    "EinsumDense": ({"equation": "bd,de->be", "output_shape": 3}, FLAT),
    "Embedding": ({"input_dim": 8, "output_dim": 3}, "ids"),
    "GRU": (_CELL, STEPS),
    "GaussianDropout": ({"rate": 0.3}, FLAT),
    "GaussianNoise": ({"stddev": 0.3}, FLAT),
    "GroupNormalization": ({"groups": 2}, (6,)),
    "HashedCrossing": ({"num_bins": 4}, None),
    "Hashing": ({"num_bins": 4}, "ids"),
    "IntegerLookup": ({"vocabulary": [1, 2, 3], "max_tokens": 5}, "ids"),
    "LSTM": (_CELL, STEPS),
    "Masking": ({"mask_value": 0.5}, STEPS),
    "MixtureOfExperts": ({"experts": 3, "top_k": 2, "units": 4}, STEPS),
    "Normalization": ({"mean": 0.5, "variance": 2.0}, FLAT),
    "PositionEmbedding": ({"sequence_length": 5}, STEPS),
    "RandomCrop": ({"height": 4, "width": 5}, IMAGE),
    "RandomPosterization": ({"factor": 4}, IMAGE),
    "RepeatVector": ({"n": 2}, FLAT),
    "Rescaling": ({"scale": 0.5}, FLAT),
    "Reshape": ({"target_shape": (2, 3)}, FLAT),
    "Resizing": ({"height": 4, "width": 5}, IMAGE),
    "ReversibleEmbedding": ({"input_dim": 8, "output_dim": 3}, "ids"),
    "RotaryEmbedding": ({}, STEPS),
    "STFTSpectrogram": (
        {"frame_length": 8, "frame_step": 4, "fft_length": 16},
        (32, 1),
    ),
    "MelSpectrogram": (
        {"fft_length": 16, "sequence_stride": 8, "num_mel_bins": 4},
        (32,),
    ),
    "SimpleRNN": (_CELL, STEPS),
    "TernaryDense": ({"units": 3}, FLAT),
}
# Layers around others, or that no single array of floats is put through.
NOT_ALONE = set(
    "Activation Bidirectional FlaxLayer GRUCell InputLayer InputSpec JaxLayer LSTMCell"
    " Lambda Layer ModuleLayer ODE Permute Pipeline RNN SimpleRNNCell"
    " SpectralNormalization StackedRNNCells StringLookup TextVectorization"
    " TimeDistributed Wrapper"
    " HashedCrossing MaxNumBoundingBoxes Mosaic CutMix MixUp RouterLosses".split()
)
SEVERAL = "Add Average Concatenate Dot Maximum Minimum Multiply Subtract".split()
ATTENTION = {
    "AdditiveAttention": {},
    "Attention": {"dropout": 0.2},
    "GroupQueryAttention": {
        "head_dim": 2,
        "num_query_heads": 4,
        "num_key_value_heads": 2,
    },
    "MultiHeadAttention": {"num_heads": 2, "key_dim": 3, "dropout": 0.2},
}
RATES = {"AdditiveAttention": {"dropout": 0.2}}


def layer_subjects() -> Iterator[Subject]:
    """All layers that are put between an input and a ``Dense``."""
    seen = set()
    for name in layers.__all__:
        cls = getattr(layers, name)
        if not isinstance(cls, type) or cls in seen or cls.__name__ in NOT_ALONE:
            continue
        seen.add(cls)
        yield layer_subject(cls.__name__)


def layer_subject(name: str) -> Subject:
    """The subject of one of these layers."""
    cls = getattr(layers, name)
    inputs, arguments, shape = 1, {}, None
    if name in SEVERAL:
        inputs, shape = 2, FLAT
        arguments = {"axes": -1} if name == "Dot" else {}
    elif cls.__name__ in ("GroupedQueryAttention", "GroupQueryAttention"):
        arguments, shape, inputs = ATTENTION["GroupQueryAttention"], STEPS, 2
    elif name in ATTENTION:
        arguments = ATTENTION[name] | RATES.get(name, {})
        shape, inputs = STEPS, 2
    elif name in REQUIRED:
        arguments, shape = REQUIRED[name]
    else:
        needed = [
            n
            for n, p in inspect.signature(cls).parameters.items()
            if p.default is p.empty and p.kind is not p.VAR_KEYWORD
        ]
        arguments = {n: _NUMBERS.get(n, 0.3) for n in needed}
        last = name[-2:]
        image = name.startswith("Random") or cls.__module__.rpartition(".")[2] in ()
        shape = SHAPES.get(
            last, IMAGE if image or "preprocessing" in cls.__module__ else FLAT
        )
    options = numbers_of(cls, arguments, UNSET_OF_LAYERS)
    dtype, row = ("int32", (6,)) if shape == "ids" else ("float32", shape)
    if dtype == "int32":
        x = RNG.integers(0, 5, (ROWS, *row)).astype(dtype)
    elif "preprocessing" in cls.__module__:
        x = RNG.uniform(0, 255, (ROWS, *row)).astype(dtype)
    else:
        x = RNG.normal(size=(ROWS, *row)).astype(dtype)

    def make(option: str | None = None, value: Any = None, **kind: Any) -> Any:
        given = arguments | ({} if option is None else {option: value})
        it = cls(**given, name="it")
        symbol = exburn.Input(row, dtype=dtype)
        out = symbol if inputs == 1 else [layers.Dense(row[-1])(symbol), symbol]
        if inputs == 1 and dtype == "float32" and "preprocessing" not in cls.__module__:
            out = layers.Dense(row[-1], name="before")(symbol)
        takes_each = isinstance(
            it, layers.GroupedQueryAttention | layers.MultiHeadAttention
        )
        out = it(*out) if takes_each else it(out)
        out = exburn.ops.cast(out, "float32")
        if "preprocessing" in cls.__module__:  # pixels
            out = out / 255.0
        out = layers.Flatten()(out) if len(out.shape) > 1 else out
        model = exburn.Model(symbol, layers.Dense(2)(out))
        compile_as(model, optimizers.SGD(1e-3), "mse", **kind)
        return model

    return Subject(f"layers.{name}", options, lambda n: f"it/{n}", make, x, None)


# ---------------------------------------------------------------------- one Dense
X = RNG.normal(size=(ROWS, 6)).astype("float32")


def compile_as(model: Any, optimizer: Any, loss: Any, **kind: Any) -> None:
    """Compiles a model, maybe with accumulated gradients."""
    model.compile(optimizer, loss, seed=1, **kind)


def dense_subjects() -> Iterator[Subject]:
    """Initializers, regularizers and constraints, each of a ``Dense``."""
    unset = {"seed": [3], "l1": [0.1], "l2": [0.1]}
    given = {
        "Constant": {"value": 0.3},
        "STFT": None,
        "FunctionInitializer": None,
        "Identity": {"gain": 0.5},
        "MinMaxNorm": {"min_value": 0.2, "max_value": 0.6},
        "MaxNorm": {"max_value": 0.3},
        "OrthogonalRegularizer": {"factor": 0.1},
    }
    for room, argument in (
        (initializers, "kernel_initializer"),
        (regularizers, "kernel_regularizer"),
        (constraints, "kernel_constraint"),
    ):
        base = {"kernel_initializer": initializers.Initializer}.get(argument)
        seen: set[type] = set()
        for name in room.__all__:
            cls = getattr(room, name)
            if not isinstance(cls, type) or cls in seen or cls is base:
                continue
            seen.add(cls)
            arguments = given.get(cls.__name__, {})
            abstract = "Regularizer", "Constraint", "RandomInitializer"
            if arguments is None or cls.__name__ in abstract:
                continue
            options = numbers_of(cls, arguments, unset)
            if options:
                yield _of_dense(
                    f"{room.__name__[7:]}.{cls.__name__}",
                    cls,
                    arguments,
                    argument,
                    options,
                )


def _of_dense(
    name: str, cls: Any, arguments: dict, argument: str, options: dict
) -> Subject:
    def make(option: str | None = None, value: Any = None, **kind: Any) -> Any:
        part = cls(**arguments | ({} if option is None else {option: value}))
        dense = layers.Dense(6, "tanh", **{argument: part}, name="it")
        model = exburn.Sequential([exburn.Input((6,)), dense, layers.Dense(2)])
        compile_as(model, optimizers.SGD(0.1), "mse", **kind)
        return model

    return Subject(name, options, lambda n: f"it/{argument}/{n}", make, X, None)


# ---------------------------------------------------------------------- training
def loss_subjects() -> Iterator[Subject]:
    """All losses of one output, and of pairs of answers."""
    for name in losses.__all__:
        cls = getattr(losses, name)
        if not isinstance(cls, type) or not issubclass(cls, losses.Loss):
            continue
        if name == "CTC":  # of sequences
            continue
        unset = {"ignore_class": [1], "label_smoothing": [0.1]}
        given = {"residual": equation} if name == "Residual" else {}
        options = numbers_of(cls, given, unset)
        if name in _OF_PAIRS:
            yield _of_preference(name, cls, options)
        elif options:
            yield _of_loss(name, cls, options, given)


@exburn.saving.register_keras_serializable()
def equation(u: Any, x: Any) -> Any:
    """What ``Residual`` brings to zero."""
    return u(x) - 0.5


def _of_preference(name: str, cls: type, options: dict) -> Subject:
    def text(*answer: int) -> Document:
        return Document([1, 2, *answer], [False, False, *map(bool, answer)])

    pairs = [DocumentPair(text(n, 5, 6), text(6, n)) for n in range(1, ROWS)]
    labels = [n % 3 > 0 for n in range(1, ROWS)] if name == "KTO" else None

    def make(option: str | None = None, value: Any = None, **kind: Any) -> Any:
        exburn.set_random_seed(0)
        model = GPT2(ROWS, layers=1, width=8, heads=2, positions=64)
        model.add_lora(2)
        loss = cls(**{} if option is None else {option: value})
        compile_as(model, optimizers.SGD(0.1), loss, **kind)
        return model

    x = PackedPairs(pairs, labels=labels)
    path, fit = (lambda n: f"loss/{n}"), {"epochs": 2, "verbose": 0}
    return Subject(f"losses.{name}", options, path, make, x, None, fit)


def _of_loss(name: str, cls: type, options: dict, given: dict) -> Subject:
    takes_classes = "Sparse" in name or name in _OF_CLASSES
    y = RNG.integers(0, 3, ROWS).astype("int32")
    if not takes_classes:
        y = np.eye(3, dtype="float32")[y]

    def make(option: str | None = None, value: Any = None, **kind: Any) -> Any:
        loss = cls(**given | ({} if option is None else {option: value}))
        last = layers.Dense(3, "sigmoid" if "Binary" in name else "softmax")
        model = exburn.Sequential([exburn.Input((6,)), layers.Dense(4, "tanh"), last])
        compile_as(model, optimizers.SGD(0.1), loss, **kind)
        return model

    return Subject(f"losses.{name}", options, lambda n: f"loss/{n}", make, X, y)


_OF_CLASSES = "Circle", "CategoricalGeneralizedCrossEntropy"
_OF_PAIRS = "DPO", "IPO", "KTO", "ORPO"
UNSET_OF_OPTIMIZERS = {
    "weight_decay": [0.1],
    "clipnorm": [0.05],
    "clipvalue": [0.01],
    "global_clipnorm": [0.05],
    "ema_overwrite_frequency": [2],
    "gradient_accumulation_steps": [2, 3],
    "l2_weight_decay": [0.1],
}
SKIPPED = {"loss_scale_factor", "seed"}  # a sweep's "seed" is that of compile
OF_OPTIMIZERS = {  # another interval shows in six steps
    "SOAP": {"precondition_interval": 2},
    "Sophia": {"update_interval": 2},
}


def optimizer_subjects() -> Iterator[Subject]:
    """All optimizers but those that are put around others."""
    for name in optimizers.__all__:
        cls = getattr(optimizers, name)
        if not isinstance(cls, type) or not issubclass(cls, optimizers.Optimizer):
            continue
        if name in (
            "Optimizer",
            "OptaxOptimizer",
            "MultiOptimizer",
            "LossScaleOptimizer",
        ):
            continue
        yield optimizer_subject(name)


def optimizer_subject(name: str) -> Subject:
    cls: Any = getattr(optimizers, name)
    options = numbers_of(cls, OF_OPTIMIZERS.get(name, {}), UNSET_OF_OPTIMIZERS)
    options = {k: v for k, v in options.items() if k not in SKIPPED}

    def make(
        option: str | None = None, value: Any = None, steps=None, **kind: Any
    ) -> Any:
        given: dict[str, Any] = {"learning_rate": 0.05}
        if option == "ema_overwrite_frequency" or option == "ema_momentum":
            given["use_ema"] = True
        given |= OF_OPTIMIZERS.get(name, {})
        given |= {} if option is None else {option: value}
        if steps is not None:
            given.setdefault("gradient_accumulation_steps", steps)
        model = exburn.Sequential(
            [exburn.Input((6,)), layers.Dense(4, "tanh"), layers.Dense(2)]
        )
        compile_as(model, cls(**given), "mse", **kind)
        return model

    return Subject(f"optimizers.{name}", options, lambda n: n, make, X, None)


_DECAY = {"initial_learning_rate": 0.1, "decay_steps": 3, "decay_rate": 0.9}
SCHEDULES: dict[str, dict[str, Any]] = {
    "CosineDecay": {
        "initial_learning_rate": 0.1,
        "decay_steps": 5,
        "warmup_target": 0.2,
        "warmup_steps": 2,
    },
    "CosineDecayRestarts": {"initial_learning_rate": 0.1, "first_decay_steps": 3},
    "ExponentialDecay": {
        "initial_learning_rate": 0.1,
        "decay_steps": 3,
        "decay_rate": 0.9,
    },
    "InverseTimeDecay": {
        "initial_learning_rate": 0.1,
        "decay_steps": 3,
        "decay_rate": 0.9,
    },
    "PiecewiseConstantDecay": {"boundaries": [2, 4], "values": [0.1, 0.05, 0.01]},
    "PolynomialDecay": {"initial_learning_rate": 0.1, "decay_steps": 4},
    "StepSchedule": {"initial_learning_rate": 0.1, "epochs_per_step": 1, "gamma": 0.5},
    "ExponentialSchedule": {"initial_learning_rate": 0.1, "gamma": 0.5},
    "CosineSchedule": {"initial_learning_rate": 0.1},
    "OneCycle": {},
    "LinearWarmup": {},
    "WarmupStableDecay": {
        "max_learning_rate": 0.1,
        "total_steps": 6,
        "warmup_steps": 2,
        "decay_steps": 2,
    },
}
UNSET_OF_SCHEDULES = {"steps_per_epoch": [2], "epochs": [3], "warmup_target": [0.3]}


def schedule_subjects() -> Iterator[Subject]:
    """All schedules, each of ``SGD``."""
    for name in schedules.__all__:
        cls: Any = getattr(schedules, name)
        if isinstance(cls, type) and name not in ("LearningRateSchedule", "Scaled"):
            yield schedule_subject(name)


def schedule_subject(name: str) -> Subject:
    cls: Any = getattr(schedules, name)
    arguments = dict(SCHEDULES.get(name, {}))
    for n, p in inspect.signature(cls).parameters.items():
        if p.default is p.empty and n not in arguments:
            arguments[n] = 3 if "steps" in n or "epochs" in n else 0.1
    options = numbers_of(cls, arguments, UNSET_OF_SCHEDULES)

    def make(
        option: str | None = None, value: Any = None, steps=None, **kind: Any
    ) -> Any:
        schedule = cls(**arguments | ({} if option is None else {option: value}))
        model = exburn.Sequential(
            [exburn.Input((6,)), layers.Dense(4, "tanh"), layers.Dense(2)]
        )
        sgd = optimizers.SGD(schedule, gradient_accumulation_steps=steps)
        compile_as(model, sgd, "mse", **kind)
        return model

    path = lambda n: f"learning_rate/{n}"  # noqa: E731
    return Subject(f"schedules.{name}", options, path, make, X, None)


# ---------------------------------------------------------------------- comparison
@dataclasses.dataclass
class Outcome:
    """What became of one argument of a subject.

    Attributes:
        option: The argument.
        value: What it was set to.
        kind: ``"same"``, ``"differs"``, ``"refused"``, or ``"no value"`` where no other
            value that was tried can be trained with.
        text: Details.
    """

    option: str
    value: Any
    kind: str
    text: str = ""


def target(subject: Subject) -> Any:
    """What the models of a subject are trained to tell."""
    if subject.y is not None or isinstance(subject.x, PackedPairs):
        return subject.y
    return np.random.default_rng(1).normal(size=(ROWS, 2)).astype("float32")


def alone(subject: Subject, option: str | None, value: Any, **kind: Any) -> list[Any]:
    """The losses and the weights of a model that is trained alone."""
    model = subject.make(option, value, **kind)
    losses = model.fit(subject.x, target(subject), **subject.fit).history["loss"]
    return [np.asarray(losses), *model.get_weights()]


def are_close(one: list[Any], other: list[Any]) -> bool:
    """Whether losses and weights are the same to rounding."""
    return len(one) == len(other) and all(
        a.shape == b.shape and np.allclose(a, b, rtol=5e-4, atol=2e-5)
        for a, b in zip(one, other, strict=True)
    )


def outcomes(
    subject: Subject, mesh: Any = None, only: Any = None, **kind: Any
) -> Iterator[Outcome]:
    """What becomes of every numeric argument.

    Args:
        subject: The subject.
        only: Some of its arguments; all by default.
        mesh: As of ``sweep``.
        **kind: Further arguments of ``make``.
    """
    first = alone(subject, None, None, **kind)
    for option, values in subject.options.items():
        if only is not None and option not in only:
            continue
        found, tries = None, 0
        for value in values:
            try:
                own = alone(subject, option, value, **kind)
            except Exception:  # another value, then: what fits is not known here
                continue
            if np.isfinite(own[0]).all():
                found, tries = (value, own), tries + 1
                if tries == _TRIES or not are_close(own, first):
                    break
        if found is None:
            yield Outcome(option, values, "no value")
            continue
        value, own = found
        base = subject.make(**kind)
        if option.startswith("ema"):  # which another one needs
            base = subject.make(option, {"ema_momentum": 0.99}.get(option), **kind)
        path = subject.path(option)
        try:
            result = sweep(
                base,
                subject.x,
                target(subject),
                over={path: [value]},
                mesh=mesh,
                **subject.fit,
            )
        except ExBurnError as error:
            yield Outcome(option, value, "refused", str(error))
            continue
        losses = np.asarray(result.records[0].history["loss"])
        got = [losses, *result.best_model().get_weights()]
        notes = "; ".join(result.notes)
        if are_close(got, own):
            changed = "no effect; " if are_close(own, first) else ""
            yield Outcome(option, value, "same", changed + notes)
        else:
            yield Outcome(option, value, "differs", f"{got[0]} {own[0]} {notes}")
