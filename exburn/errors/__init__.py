"""Every error ExBurn raises on purpose.

An error says what must hold, what was received, and what to do next, in at most
twelve lines. Each class also derives from the built-in exception that fits, so
``except ValueError`` keeps working in code written for Keras or NumPy.
"""

from __future__ import annotations

import concurrent.futures.thread
import contextlib
import difflib
import functools
import importlib
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "ArgumentError",
    "BatchFailedError",
    "BusyError",
    "CallbackError",
    "CheckpointError",
    "CheckpointWarning",
    "ConstantLossWarning",
    "DataError",
    "DTypeError",
    "DeadlineExceededError",
    "ExBurnError",
    "ExportError",
    "FileFormatError",
    "GraphError",
    "IncompleteAnswerError",
    "LayoutError",
    "LoadError",
    "LogitsWarning",
    "MissingDependencyError",
    "MissingFileError",
    "ModelFormatError",
    "NonFiniteLossWarning",
    "NotBuiltError",
    "NotCompiledError",
    "OutOfMemoryError",
    "ProcessError",
    "QueueFullError",
    "RecompileWarning",
    "SaveError",
    "ServingClosedError",
    "ShapeError",
    "SignatureError",
    "TargetError",
    "TrainingWarning",
    "UncalledLayerError",
    "UnheldLayerError",
    "UnknownNameError",
    "did_you_mean",
    "locate",
    "places_of",
    "require",
    "unknown_argument",
    "unknown_name",
    "warn",
]

JAX_NOTE = "JAX has removed its internal frames"
_MAX_LINES = 12
_MAX_TEXT = 4000  # characters of a reason
_SPREAD = 0.2  # of the likeness of names to the one that is not known
_MAX_NAME = 200  # of a name that others are compared with
# Characters that act on a terminal, or hide or turn around what stands beside them:
# controls but tab and newline, marks of direction, separators, halves of a pair.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
_OWN = (
    os.path.dirname(os.path.dirname(__file__)) + os.sep,
    *(contextlib.__file__, threading.__file__, concurrent.futures.thread.__file__),
)


def printable(text: str) -> str:
    """A text whose characters a terminal shows, and obeys none of.

    Names come from files, and files from strangers. Whatever is printed goes through
    here: errors and warnings, tables, progress, the output of the command line.

    Example:
        >>> print(printable("kernel\\x1b[2J\\u202e, naïve"))
        kernel\\x1b[2J\\u202e, naïve
    """
    return _UNPRINTABLE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "backslashreplace").decode("ascii")


class ExBurnError(Exception):
    """Root of all ExBurn errors.

    Args:
        op: The operation that failed, for example ``"fit"`` or ``"Dense"``.
        reason: What must hold, and what was received instead.
        details: Named facts (argument, shape, first offending value), one line each.
        hint: What to do next.

    Example:
        >>> print(ExBurnError("matmul", "shapes differ", {"a": (3, 4)}, hint="Try .T"))
        matmul: shapes differ
          a: (3, 4)
          → Try .T
    """

    def __init__(
        self,
        op: str,
        reason: str,
        details: Mapping[str, Any] | None = None,
        *,
        hint: str | None = None,
    ):
        self.op = op
        self.reason = reason
        self.details = dict(details or {})
        self.hint = hint
        self.places: list[str] = []
        super().__init__(str(self))

    def __str__(self) -> str:
        lines = [f"{self.op}: {_cut(self.reason)}"]
        places = self.places
        if places and not self.details and not self.hint:
            lines[0] += f", {_short(', '.join(places))}"  # it is the last line
            places = []
        lines += [f"  {key}: {_short(value)}" for key, value in self.details.items()]
        most = _MAX_LINES - 1 - len(places)
        if len(lines) > most:
            hidden = len(lines) - (most - 1)
            lines = lines[: most - 1] + [f"  … and {hidden} more"]
        lines += [f"  {_short(place)}" for place in places]
        if self.hint:
            lines.append(f"  → {_cut(self.hint)}")
        return printable("\n".join(lines))

    def add_note(self, note: str, /) -> None:
        """Adds a note, but not that of JAX on hidden frames: it would be the last line.

        Args:
            note: The note.
        """
        if JAX_NOTE not in note:
            super().add_note(note)

    def __reduce__(self) -> tuple[Any, ...]:
        """For other processes, such as those of a data loader."""
        plain = str | int | float | None
        details = {
            key: value if isinstance(value, plain) else _short(value)
            for key, value in self.details.items()
        }
        make = functools.partial(type(self), hint=self.hint)
        state = {"places": self.places}
        if hasattr(self, "__notes__"):
            state["__notes__"] = self.__notes__
        return make, (self.op, self.reason, details), state


def _short(value: Any) -> str:
    text = str(value).replace("\n", " ")
    return text if len(text) <= 200 else text[:197] + "…"


def _cut(text: str, most: int = _MAX_TEXT) -> str:
    """A text without what is beyond so many characters: a name may have millions."""
    return text if len(text) <= most else text[: most - 1] + "…"


def locate(
    error: BaseException, place: str, *, instead_of: str = "", hint: str | None = None
) -> None:
    """Says in an error's message where it happened; what to do stays its last line.

    Errors that are none of ExBurn's and have no plain text, such as those of a user's
    own class, are given a note instead, which stands below the message.

    Args:
        error: The error, on its way to the user.
        place: The place, ``"in layer 'dense'"``; inner ones come first.
        instead_of: A place that was said before and is told by this one, too.
        hint: What to do, for errors that are none of ExBurn's; of their text the first
            line is left then.

    Example:
        >>> error = ValueError("shapes differ")
        >>> locate(error, "in layer 'dense'")
        >>> print(error)
        in layer 'dense': shapes differ
    """
    places = places_of(error)
    if instead_of in places:
        places.remove(instead_of)
    places.append(place)
    if isinstance(error, ExBurnError):
        return
    state = vars(error)
    state["_exburn_places"] = places
    if hint is not None:
        state["_exburn_hint"] = hint
    if "_exburn_text" not in state:
        state["_exburn_text"] = _plain_text(error)
    if (text := state["_exburn_text"]) is None:
        error.add_note(place)
        error.__notes__[:] = [note for note in error.__notes__ if note != instead_of]
        return
    if (hint := state.get("_exburn_hint")) is not None:
        text = f"{text.partition(chr(10))[0]}\n  → {hint}"
    text = f"{', '.join(places)}: {text}"
    if isinstance(error, OSError) and error.strerror:
        error.strerror = text
    else:
        error.args = (_Verbatim(text) if isinstance(error, KeyError) else text,)


class _Verbatim(str):
    """The text of a ``KeyError``, which shows what stands for its key as it is."""

    __slots__ = ()
    __repr__ = str.__str__


def _plain_text(error: BaseException) -> str | None:
    """The text of an error of Python or JAX that is nothing but a text."""
    if type(error).__module__.partition(".")[0] not in ("builtins", "jax"):
        return None
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if type(error) is KeyError and len(error.args) == 1:
        return repr(error.args[0])
    has_text = len(error.args) == 1 and str(error) == error.args[0] != ""
    return str(error) if has_text else None


def places_of(error: BaseException) -> list[str]:
    """The places that an error's message names, inner ones first.

    Args:
        error: Any exception; one that was not located names none.

    Example:
        >>> places_of(ValueError("shapes differ"))
        []
    """
    if isinstance(error, ExBurnError):
        return error.places
    return list(vars(error).get("_exburn_places", ()))


class ArgumentError(ExBurnError, ValueError):
    """An argument has a value that can never work (``batch_size=0``).

    Example:
        >>> from exburn import layers
        >>> try:
        ...     layers.Dense(0)
        ... except ValueError as error:
        ...     print(error.op, "·", error.reason)
        Dense · units must be an integer ≥ 1, received 0
    """


class SignatureError(ArgumentError, TypeError):
    """A call with arguments that a function or a class does not take.

    Example:
        >>> from exburn import layers
        >>> try:
        ...     layers.Dense(3, activaton="relu")
        ... except TypeError as error:
        ...     print(error.hint)
        Did you mean 'activation'?
    """


class LayoutError(ArgumentError):
    """A mesh or a layout that the devices, or a model's weights, cannot have.

    Example:
        >>> from exburn.distribution import DeviceMesh
        >>> try:
        ...     DeviceMesh((2,), ["data"], ["cpu:0"])
        ... except ValueError as error:
        ...     print(error.op)
        DeviceMesh
    """


class ProcessError(ExBurnError, RuntimeError):
    """Another process of a run is lost, has failed, or does something else.

    Example:
        >>> issubclass(ProcessError, RuntimeError)  # raised in all processes of a run
        True
    """


class MissingFileError(ArgumentError, FileNotFoundError):
    """There is no file where one should be read.

    Example:
        >>> import exburn
        >>> try:
        ...     exburn.load_model("nowhere.keras")
        ... except FileNotFoundError as error:
        ...     print(type(error).__name__)
        MissingFileError
    """


class ShapeError(ExBurnError, ValueError):
    """Shapes or ranks do not fit together.

    Example:
        >>> import numpy as np
        >>> from exburn import layers
        >>> try:
        ...     layers.Add()([np.ones((2, 3)), np.ones((2, 4))])
        ... except ValueError as error:
        ...     print(error.reason)
        the inputs do not broadcast: float32[2, 3], float32[2, 4]
    """


class DTypeError(ExBurnError, TypeError):
    """A value has a type or dtype that ExBurn cannot compute with.

    Example:
        >>> import exburn
        >>> try:
        ...     exburn.backend.standardize_dtype("float31")
        ... except TypeError as error:
        ...     print(type(error).__name__)
        DTypeError
    """


class DataError(ExBurnError, ValueError):
    """Data that cannot be trained on: empty, unequal lengths, NaN, ragged …

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> model.compile("adam", "mse")
        >>> try:
        ...     model.fit(np.ones((4, 2)), np.ones((3, 3)))
        ... except ValueError as error:
        ...     print(error.reason)
        x and y must have the same number of rows
    """


class IncompleteAnswerError(DataError):
    """Answers that end before they have the form that was asked for.

    Attributes:
        answers: What was written, in the form in which ``generate`` returns it; of a
            stream nothing, since it has given all out.
        rows: Numbers of the answers that are incomplete.

    Example:
        >>> from exburn.applications import GPT2
        >>> from exburn.text import Tokenizer
        >>> model = GPT2(vocabulary_size=270, layers=1, width=8, heads=2, positions=64)
        >>> model.tokenizer = Tokenizer.train(["so it is"] * 9, 270)
        >>> try:
        ...     model.generate("so", 3, regex="[a-z]{20}")
        ... except IncompleteAnswerError as error:
        ...     print(len(error.answers) <= 6, error.rows)
        True [0]
    """

    answers: Any = None
    rows: Sequence[int] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        make, arguments, state = super().__reduce__()
        return make, arguments, {**state, "answers": self.answers, "rows": self.rows}


class TargetError(DataError):
    """Targets that do not fit the loss: labels out of range, one-hot for sparse …

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> model.compile("adam", "cross_entropy")
        >>> try:
        ...     model.fit(np.ones((4, 2)), np.array([0, 1, 2, 3]), verbose=0)
        ... except ValueError as error:
        ...     print(error.op)
        cross_entropy
    """


class GraphError(ExBurnError, ValueError):
    """A functional model's graph is not well formed.

    Example:
        >>> from exburn import Input, Model, layers
        >>> x = Input((2,))
        >>> try:
        ...     Model(Input((2,)), layers.Dense(3)(x))
        ... except ValueError as error:
        ...     print(error.op)
        Model
    """


class UnheldLayerError(GraphError):
    """A program reaches a layer or a weight that its model does not hold.

    Example:
        >>> issubclass(UnheldLayerError, GraphError)  # keep the layer as an attribute
        True
    """


class UncalledLayerError(GraphError, AttributeError):
    """The layer has no ``input`` or ``output``: it was not called on symbols.

    Example:
        >>> from exburn import layers
        >>> try:
        ...     layers.Dense(3).output
        ... except AttributeError as error:
        ...     print(type(error).__name__)
        UncalledLayerError
    """


class NotBuiltError(ExBurnError, RuntimeError):
    """The operation needs weights, and the layer or model has none yet.

    Example:
        >>> from exburn import Sequential, layers
        >>> try:
        ...     Sequential([layers.Dense(3)]).count_params()
        ... except RuntimeError as error:
        ...     print(error.op)
        sequential
    """


class NotCompiledError(ExBurnError, RuntimeError):
    """The operation needs ``model.compile(...)`` first.

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> try:
        ...     model.fit(np.ones((4, 2)), np.ones((4, 3)))
        ... except RuntimeError as error:
        ...     print(error.op)
        fit
    """


class OutOfMemoryError(ExBurnError, MemoryError):
    """A program needs more memory than the device has.

    Attributes:
        plan: The ``model.plan`` of the program that failed; ``None`` if there is none.

    Example:
        >>> try:
        ...     raise OutOfMemoryError("fit", "it needs more than there is")
        ... except MemoryError as error:
        ...     print(error.plan)
        None
    """

    plan: Any = None


class CallbackError(ExBurnError, ValueError):
    """A callback is misconfigured, for example an unknown ``monitor``.

    Example:
        >>> from exburn.callbacks import EarlyStopping
        >>> try:
        ...     EarlyStopping(mode="best")
        ... except ValueError as error:
        ...     print(error.reason)
        mode must be 'auto', 'min' or 'max'
    """


class CheckpointError(ExBurnError, RuntimeError):
    """A checkpoint cannot be written, or no intact one can be read.

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> model.compile("adam", "mse")
        >>> try:
        ...     model.load_weights("no such folder/")
        ... except ValueError as error:
        ...     print(error.op)
        load_weights
    """


class BusyError(ExBurnError, RuntimeError):
    """The model is being trained: its arrays cannot be used for anything else.

    Example:
        >>> issubclass(BusyError, RuntimeError)  # say, of ``predict`` in another thread
        True
    """


class RecompileWarning(UserWarning):
    """A program was compiled again because a shape or dtype changed.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("ignore", category=RecompileWarning)
    """


class CheckpointWarning(UserWarning):
    """A checkpoint was not written, or an older one had to be read.

    Example:
        >>> import warnings
        >>> warnings.filterwarnings("error", category=CheckpointWarning)
    """


class FileFormatError(ExBurnError, ValueError):
    """A file is damaged, or is not what it claims to be.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "model.keras")
        >>> _ = path.write_bytes(b"no archive")
        >>> import exburn
        >>> try:
        ...     exburn.load_model(path)
        ... except ValueError as error:
        ...     print(type(error).__name__)
        ModelFormatError
    """


class ModelFormatError(FileFormatError):
    """A model file is damaged, malicious, or names what is not known here.

    Example:
        >>> from exburn.saving import model_from_json
        >>> try:
        ...     model_from_json("{}")
        ... except ValueError as error:
        ...     print(error.op)
        load
    """


class ExportError(ExBurnError, ValueError):
    """A model, or an operation in it, that another runtime's format cannot express.

    Also a written file that computes something else than its model.

    Attributes:
        layer: Path of the layer that the operation belongs to; `None` if unknown.
        primitive: Name of JAX's operation; `None` if it is none's fault.

    Example:
        >>> error = ExportError("export", "no such operation", {"layer": "block/fft"})
        >>> error.layer, error.primitive
        ('block/fft', None)
    """

    @property
    def layer(self) -> str | None:
        return self.details.get("layer")

    @property
    def primitive(self) -> str | None:
        return self.details.get("primitive")


class SaveError(ExBurnError, OSError):
    """The system refuses to write a file: disk full, read-only, no permission.

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential, layers
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> try:
        ...     model.save("/proc/model.keras")
        ... except OSError as error:
        ...     print(type(error).__name__)
        SaveError
    """


class LoadError(ExBurnError, OSError):
    """The system refuses to read a file: it is missing, or may not be read.

    Example:
        >>> issubclass(LoadError, OSError)  # say, no permission to read
        True
    """


class MissingDependencyError(ExBurnError, ImportError):
    """An optional package is needed; the hint holds the install command.

    Example:
        >>> try:
        ...     require("no_such_package", "demo", "it is needed", extra="plot")
        ... except ImportError as error:
        ...     print(error.hint)
        pip install 'exburn[plot]'  (or: pip install no_such_package)
    """


class QueueFullError(ExBurnError, RuntimeError):
    """As many requests are waiting as a ``Serving`` may hold.

    Example:
        >>> issubclass(QueueFullError, RuntimeError)  # a server answers 429
        True
    """


class DeadlineExceededError(ExBurnError, TimeoutError):
    """A request was not answered within its ``timeout``.

    Example:
        >>> issubclass(DeadlineExceededError, TimeoutError)
        True
    """


class ServingClosedError(ExBurnError, RuntimeError):
    """A ``Serving`` was closed before it could answer the request.

    Example:
        >>> import numpy as np
        >>> from exburn import Input, Sequential, layers
        >>> from exburn.serving import Serving
        >>> model = Sequential([Input((2,)), layers.Dense(3)])
        >>> serving = Serving(model)
        >>> serving.close()
        >>> try:
        ...     serving.submit(np.ones((1, 2)))
        ... except RuntimeError as error:
        ...     print(error.op)
        serving
    """


class BatchFailedError(ExBurnError, RuntimeError):
    """The batch that a request ran in failed; ``__cause__`` is what was raised.

    Example:
        >>> issubclass(BatchFailedError, RuntimeError)
        True
    """


class UnknownNameError(ExBurnError, ValueError):
    """A name (of a loss, layer, metric …) that nothing is registered under.

    Example:
        >>> from exburn import losses
        >>> try:
        ...     losses.get("mze")
        ... except ValueError as error:
        ...     print(error.hint)
        Did you mean 'mse' or 'mae' or 'msle'?
    """


def unknown_name(
    kind: str, name: Any, known: Iterable[str], *, op: str = "get", hint: str = ""
) -> UnknownNameError:
    """Builds the error for an unknown name, with the closest known ones and a hint.

    Args:
        kind: What is named: ``"loss"``.
        name: The name that was given.
        known: All names there are.
        op: The operation that failed.
        hint: What to do next, beside the closest names.

    Example:
        >>> print(unknown_name("loss", "mze", ["mse", "mae"]))
        get: unknown loss 'mze'
          known: mae, mse
          → Did you mean 'mse' or 'mae'?
    """
    known = sorted(known)
    if meant := did_you_mean(name, known):
        hint = f"{meant} {hint}".strip()
    return UnknownNameError(
        op, f"unknown {kind} {name!r}", {"known": ", ".join(known)}, hint=hint or None
    )


def did_you_mean(name: Any, known: Iterable[str]) -> str:
    """The question after a name that is not known; empty if none is like it.

    Args:
        name: The name that was given.
        known: All names there are.

    Example:
        >>> did_you_mean("epoch", ["epochs", "verbose"])
        "Did you mean 'epochs'?"
        >>> did_you_mean("lr", ["beta", "learning_rate"])
        "Did you mean 'learning_rate'?"
    """
    word = str(name)[:_MAX_NAME]
    short = [one for one in known if len(one) <= _MAX_NAME]
    near = difflib.get_close_matches(word, short, n=3, cutoff=0.5)
    lowered = {one.lower(): one for one in short}
    lower = word.lower()
    alike = difflib.get_close_matches(lower, lowered, n=3, cutoff=0.5)
    if alike:  # beside one that differs by a letter, others are not meant
        least = _likeness(lower, alike[0]) - _SPREAD
        alike = [one for one in alike if _likeness(lower, one) > least]
    near = [one for one in near if one.lower() in alike]
    longer = [one for one in lowered if len(lower) > 1 and one.startswith(lower)]
    brief = [one for one in lowered if len(lower) > 1 and _initials(one) == lower]
    # Of names that differ by capitals alone the closest one, else that in snake case.
    nearest = {one.lower(): one for one in reversed(near)}
    order = dict.fromkeys((*brief, *(one.lower() for one in near), *alike, *longer))
    close = [nearest.get(one, lowered[one]) for one in order][:3]
    return f"Did you mean {' or '.join(map(repr, close))}?" if close else ""


def _likeness(one: str, other: str) -> float:
    return difflib.SequenceMatcher(None, other, one).ratio()


def _initials(name: str) -> str:
    return "".join(part[:1] for part in name.split("_"))


def unknown_argument(
    op: str, arguments: Iterable[str], known: Iterable[str]
) -> SignatureError:
    """Builds the error for an argument that a call does not take.

    Args:
        op: What was called.
        arguments: The names that it was given; one at least is not known.
        known: Those that it takes.

    Example:
        >>> print(unknown_argument("fit", ["epoch"], ["x", "y", "epochs"]))
        fit: unknown argument 'epoch'
          known: x, y, epochs
          → Did you mean 'epochs'?
    """
    known = list(known)
    unknown = [name for name in arguments if name not in known]
    plural = "s" if len(unknown) > 1 else ""
    meant = [did_you_mean(name, known) for name in unknown]
    return SignatureError(
        op,
        f"unknown argument{plural} {', '.join(map(repr, unknown))}",
        {"known": ", ".join(known) or "none: it takes no arguments"},
        hint=" ".join(filter(None, meant)) or f"help({op}) describes what it takes.",
    )


def require(
    module: str,
    op: str,
    reason: str,
    *,
    extra: str | None = None,
    package: str | None = None,
    details: Mapping[str, Any] | None = None,
) -> Any:
    """Imports a module of an optional package.

    Args:
        module: Its full name, for example ``"PIL.Image"``.
        op: The operation that needs it.
        reason: What it is needed for.
        extra: ExBurn's extra that installs the package.
        package: Name under which pip knows the package; the module's by default.
        details: As for `ExBurnError`.

    Raises:
        MissingDependencyError: It cannot be imported; the hint installs it.

    Example:
        >>> require("math", "demo", "sums need math").floor(1.5)
        1
        >>> require("no_such.module", "demo", "it is needed", extra="plot")
        Traceback (most recent call last):
        exburn.errors.MissingDependencyError: demo: it is needed
          → pip install 'exburn[plot]'  (or: pip install no_such)
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        hint = f"pip install {package or module.partition('.')[0]}"
        if extra is not None:
            hint = f"pip install 'exburn[{extra}]'  (or: {hint})"
        raise MissingDependencyError(op, reason, details, hint=hint) from error


class TrainingWarning(RuntimeWarning):
    """A training that is allowed, and rarely meant; said once a ``fit``.

    ``warnings.filterwarnings("ignore", category=exburn.errors.TrainingWarning)``
    switches all of its kinds off, and a derived class in its place that kind alone.

    Example:
        >>> issubclass(LogitsWarning, TrainingWarning)
        True
    """


class LogitsWarning(TrainingWarning):
    """A loss takes logits for probabilities, or probabilities for logits.

    Example:
        >>> issubclass(LogitsWarning, TrainingWarning)
        True
    """


class NonFiniteLossWarning(TrainingWarning):
    """The loss became NaN or infinite.

    Example:
        >>> issubclass(NonFiniteLossWarning, TrainingWarning)
        True
    """


class ConstantLossWarning(TrainingWarning):
    """The loss of three epochs is the same to the last digit.

    Example:
        >>> issubclass(ConstantLossWarning, TrainingWarning)
        True
    """


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warns of the line outside of ExBurn that led here, if this thread has one.

    Args:
        message: What is said.
        category: The class of the warning.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True, action="always") as caught:
        ...     warn("that is late")
        >>> str(caught[0].message)
        'that is late'
    """
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame, level = frame.f_back, level + 1
    warnings.warn(printable(message), category, stacklevel=level if frame else 2)
