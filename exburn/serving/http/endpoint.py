"""A model for a server, with what the model itself does not tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from exburn.errors import ArgumentError, DTypeError
from exburn.errors.boundary import guard_methods
from exburn.serving.http.images import Images
from exburn.serving.http.tensor import BYTES, DATATYPES
from exburn.serving.server import Serving
from exburn.serving.text import TextStream


@guard_methods
class Endpoint:
    """A model for a ``Server``, with what cannot be seen in it.

    Args:
        model: What ``Server`` takes; ``None`` for what only generates.
        images: Inputs that clients may send as PNG or JPEG files: ``{name: Images()}``,
            or ``Images()`` for all that have an image's shape. A model that begins with
            ``layers.Rescaling`` takes them unless this is ``False``.
        inputs: ``{name: (datatype, shape)}``, where a ``Serving`` has a
            ``preprocessing`` of its own, so that its inputs are not the model's:
            ``{"text": ("BYTES", (-1,))}``. It is called with the array, or with a dict
            of several.
        outputs: ``{name: (datatype, shape)}`` of what ``answer`` returns.
        answer: ``f(outputs, parameters)``, which makes arrays by name of the model's
            outputs and the parameters of a request, in place of the outputs.
        stream: What generates: ``f(request)``, which yields dicts or texts; or an
            object with such a method ``stream``. See docs/server.md.

    Raises:
        ArgumentError: Nothing is served, or a datatype or shape is not allowed.

    Example:
        >>> def count(request):
        ...     yield from (f"{i} " for i in range(request.get("up_to", 3)))
        >>> Endpoint(stream=count).stream is count
        True
    """

    def __init__(
        self,
        model: Any = None,
        *,
        images: Images | Mapping[str, Images] | bool | None = None,
        inputs: Mapping[str, tuple[str, Sequence[int]]] | None = None,
        outputs: Mapping[str, tuple[str, Sequence[int]]] | None = None,
        answer: Callable[[Any, Mapping[str, Any]], Mapping[str, Any]] | None = None,
        stream: Any = None,
    ):
        self.outputs = None if outputs is None else dict(outputs)
        self.answer = answer
        if (answer is None) != (outputs is None):
            raise ArgumentError("Endpoint", "answer and outputs belong together")
        self.model, self.images = model, Images() if images is True else images
        self.inputs = None if inputs is None else dict(inputs)
        self.stream: Callable[[dict[str, Any]], Any] | None = None
        if stream is not None:
            self.stream = getattr(stream, "stream", stream)
            if not callable(self.stream):
                raise DTypeError(
                    "Endpoint",
                    "stream must be a function that generates, or an object with a "
                    f"method stream, received {type(stream).__name__}",
                )
        if model is None and stream is None:
            raise ArgumentError("Endpoint", "a model or a stream is needed")
        named = [*(self.inputs or {}).items(), *(self.outputs or {}).items()]
        for name, (datatype, shape) in named:
            sizes = [n for n in shape if isinstance(n, int) and n >= -1]
            is_datatype = datatype in (*DATATYPES, BYTES)
            if not is_datatype or len(sizes) != len(shape) or list(shape[:1]) != [-1]:
                raise ArgumentError(
                    "Endpoint",
                    f"{name!r} must have a datatype and a shape that begins "
                    f"with -1, received {datatype!r} and {shape!r}",
                    hint='As in {"text": ("BYTES", (-1,))}.',
                )

    @property
    def text(self) -> TextStream | None:
        """What writes texts, if that is what generates."""
        stream = getattr(self.stream, "__self__", None)
        return stream if isinstance(stream, TextStream) else None

    @classmethod
    def of(cls, model: Any, max_queue: int | None = None) -> Endpoint:
        """The endpoint of what a server is given.

        What has a method ``stream`` generates, and is served beside that if it can be.
        A model with a tokenizer writes texts. What has a method ``as_endpoint``, as a
        predictor of sets, says itself how it is served.

        Args:
            max_queue: Texts that may wait, where a ``TextStream`` is made here.
        """
        if isinstance(model, cls):
            return model
        as_endpoint: Any = getattr(model, "as_endpoint", None)
        if as_endpoint is not None:
            return as_endpoint()
        if isinstance(model, TextStream):
            return cls(stream=model)
        if getattr(model, "tokenizer", None) is not None:
            if max_queue is None:
                return cls(stream=TextStream(model))
            return cls(stream=TextStream(model, max_queue=max_queue))
        if isinstance(model, Serving) or not callable(getattr(model, "stream", None)):
            return cls(model)
        return cls(model if callable(model) else None, stream=model)

    def of_model(self, model: Any) -> Endpoint:
        """The same for another model: that of a file, or what lies beside it."""
        own = Endpoint.of(model) if hasattr(model, "as_endpoint") else Endpoint(model)
        return Endpoint(
            own.model,
            images=self.images,
            inputs=self.inputs,
            outputs=self.outputs or own.outputs,
            answer=self.answer or own.answer,
            stream=self.stream,
        )
