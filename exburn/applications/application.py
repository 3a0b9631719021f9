"""What is around every network of this package: arguments, input, top, weights.

A family's file has its blocks and a builder. The builder is given an ``Application``,
takes its ``input``, makes the network of it, and returns ``finish(x)``.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from exburn import activations, config, layers
from exburn.applications import imagenet_utils
from exburn.applications.image_format import ImageFormat
from exburn.applications.image_network import ImageNetwork
from exburn.applications.scaling import Scaling
from exburn.core import registry
from exburn.core.checks import check_choice, check_count
from exburn.errors import (
    ArgumentError,
    DataError,
    LayoutError,
    MissingFileError,
    ShapeError,
    require,
    warn,
)
from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.module.building import materialize, place
from exburn.module.symbolic_tensor import Symbol
from exburn.saving.pretrained_folder import (
    find_weights,
    is_hub_name,
    local_source,
)
from exburn.utils.files import get_file
from exburn.utils.sources import get_source_inputs

STORAGE = "https://storage.googleapis.com/"
_CLASSES = 1000
_HINT = "Pass weights=None, or weights= the path of a file with them."

_ARGUMENTS = {
    "include_top": "Whether the classifier is part of the model.",
    "weights": """``"imagenet"``, which is downloaded once from Keras' storage; the path
        of a file (``.weights.h5``, a whole model's ``.h5`` or ``.keras``, or
        safetensors), or of a folder with one; ``"user/model"`` on a hub (needs
        ``huggingface_hub``); or ``None`` for random ones.""",
    "input_tensor": "A symbol that is used as the image.",
    "input_shape": "Shape of the images, without the batch.",
    "pooling": """Without the top: ``"avg"`` or ``"max"`` over all places, or ``None``
        for the map itself.""",
    "classes": "Number of classes of the top.",
    "classifier_activation": "Activation of the top; ``None`` for logits.",
    "include_preprocessing": """Whether the model begins with what pixels from 0 to 255
        need.""",
    "name": "Name of the model.",
}
_RAISES = """
Raises:
    ArgumentError: The arguments do not go together.
    ShapeError: The images are too small, or have other than 3 channels for
        ``"imagenet"``.
    MissingFileError: There is no such file.
    DataError: The weights are not in the cache, and cannot be downloaded.
    FileFormatError: The file is damaged, or holds another model's weights.
    MissingDependencyError: ``"imagenet"`` needs h5py.

Example:
    >>> from exburn.applications import {0}
    >>> model = {0}(weights=None, input_shape=(96, 96, 3), classes=10)
    >>> model.output_shape
    (None, 10)
"""


@dataclasses.dataclass(frozen=True)
class PretrainedFiles:
    """Keras' files for ImageNet, with and without the top, and their digests."""

    top: str
    rest: str
    top_digest: str | None = None
    rest_digest: str | None = None


def kernels(path: str, *digests: str) -> PretrainedFiles:
    """The files of a network as most are called.

    Example:
        >>> kernels("vgg16/vgg16").top.rpartition("/")[2]
        'vgg16_weights_tf_dim_ordering_tf_kernels.h5'
    """
    start = f"tensorflow/keras-applications/{path}_weights_tf_dim_ordering_tf_kernels"
    return PretrainedFiles(f"{start}.h5", f"{start}_notop.h5", *digests)


class Application:
    """The arguments of an application, checked, and the ends of its network.

    Args:
        op: Name of the function, for errors.
        include_top, weights, input_tensor, input_shape, pooling, classes,
            classifier_activation, name: As a user gives them.
        size: Height and width by default.
        smallest: The least of them.
        pretrained: Keras' files for ImageNet; ``None`` if none fit the other arguments.
        scaling: What pixels from 0 to 255 need: a mode of
            ``imagenet_utils.preprocess_input``, or another scaling.
        fixed: Whether the classifier needs a known size, and ImageNet's that size.
        channels_last: Whether there is no other form.

    Attributes:
        input: The symbol that the network begins with.
        shape: Shape of the images, without the batch.
        axis: The axis of the channels.
        weights: As given.
        scaling: As given; a builder may set another before it finishes.

    Raises:
        ArgumentError, ShapeError, MissingFileError, DataError: As :func:`variant` says.
    """

    def __init__(
        self,
        op: str,
        include_top: Any,
        weights: Any,
        input_tensor: Any,
        input_shape: Any,
        pooling: Any,
        classes: Any,
        classifier_activation: Any,
        name: str | None,
        *,
        size: int,
        smallest: int = 32,
        pretrained: PretrainedFiles | None,
        scaling: Scaling | str | None = None,
        fixed: bool = True,
        channels_last: bool = False,
    ):
        self._op, self.weights, self.name = op, weights, name
        self.include_top, self.pooling = bool(include_top), pooling
        self.classes = check_count(op, "classes", classes)
        self.activation = activations.get(classifier_activation)
        last = config.image_data_format() == "channels_last"
        if channels_last and not last:
            raise LayoutError(
                op,
                "this network has its channels last",
                hint="exburn.config.set_image_data_format('channels_last')",
            )
        self.axis = 3 if last else 1
        if pooling is not None:
            check_choice(op, "pooling", pooling, ("avg", "max"))
        self._check_weights()
        self._check_tensor(input_tensor, input_shape)
        self.shape = self._image_shape(input_shape, size, smallest, fixed)
        self._file = self._find_file(pretrained)
        if input_tensor is None:
            self.input = layers.Input(self.shape)
            self._inputs: Any = self.input
        else:
            self.input = input_tensor
            sources = get_source_inputs(input_tensor)
            self._inputs = sources[0] if len(sources) == 1 else sources
        self.scaling = scaling

    # ------------------------------------------------------------------ arguments
    def _check_weights(self) -> None:
        weights = self.weights
        if weights is None:
            return
        if not isinstance(weights, str | os.PathLike):
            raise ArgumentError(
                self._op,
                f"weights must be 'imagenet', a path or None, received {weights!r}",
            )
        here = os.path.exists(os.path.expanduser(weights))
        if weights != "imagenet" and not here and not is_hub_name(weights):
            raise MissingFileError(
                self._op,
                "weights must be 'imagenet', a file, a folder, 'user/model' on a hub "
                f"or None; there is no file {os.fspath(weights)!r}",
            )
        if not self.include_top:
            return
        if weights == "imagenet" and self.classes != _CLASSES:
            raise ArgumentError(
                self._op,
                f"the top of weights='imagenet' has {_CLASSES} classes, received "
                f"classes={self.classes}",
                hint="include_top=False leaves the top out; add your own Dense layer.",
            )
        allowed = activations.get("softmax"), activations.get(None)
        if self.activation not in allowed:
            raise ArgumentError(
                self._op,
                "the classifier of trained weights has the activation 'softmax' or "
                f"None, received {self.activation!r}",
            )

    def _check_tensor(self, tensor: Any, shape: Any) -> None:
        if tensor is None:
            return
        if not isinstance(tensor, Symbol):
            raise ArgumentError(
                self._op,
                "input_tensor must be a symbol, such as layers.Input returns, received "
                f"{type(tensor).__name__}",
            )
        if len(tensor.shape) != 4:
            raise ShapeError(
                self._op, f"input_tensor must be images, received {tensor.shape}"
            )
        if shape is None:
            return
        sizes = tuple(tensor.shape[1:])
        pairs = zip(sizes, shape, strict=False)
        if len(shape) != 3 or any(
            a != b and a is not None and b is not None for a, b in pairs
        ):
            raise ShapeError(
                self._op,
                f"input_tensor has the shape {sizes}, input_shape is {tuple(shape)}",
                hint="Pass one of them.",
            )

    def _image_shape(self, shape: Any, size: int, smallest: int, fixed: bool):
        """The shape of the images, from what was given and the size by default."""
        last, imagenet = self.axis == 3, self.weights == "imagenet"
        at = self.axis - 1
        if shape is None:
            sides = (size,) * 2 if self.include_top and fixed else (None,) * 2
            return (*sides, 3) if last else (3, *sides)
        shape = tuple(shape)
        if len(shape) != 3:
            raise ShapeError(
                self._op,
                f"input_shape has three numbers, such as ({size}, {size}, 3), received "
                f"{shape}",
            )
        for number in shape:
            if number is not None:
                check_count(self._op, "input_shape", number)
        channels, sides = shape[at], shape[:2] if last else shape[1:]
        if any(side is not None and side < smallest for side in sides):
            raise ShapeError(
                self._op,
                f"images must be at least {smallest} × {smallest}, received "
                f"input_shape={shape}",
            )
        if imagenet and channels != 3:
            raise ShapeError(
                self._op,
                f"weights='imagenet' are for 3 channels, received input_shape={shape}",
            )
        if not imagenet and channels not in (1, 3):
            warn(f"{self._op}: images usually have 1 or 3 channels, not {channels}")
        if not (self.include_top and fixed):
            return shape
        if imagenet and sides != (size, size):
            raise ShapeError(
                self._op,
                f"with the top, weights='imagenet' are for images of {size} × {size}, "
                f"received input_shape={shape}",
                hint="include_top=False takes any size.",
            )
        if None in shape:
            raise ShapeError(
                self._op,
                f"with the top the size must be known, received input_shape={shape}",
            )
        return shape

    def _find_file(self, pretrained: PretrainedFiles | None) -> Any:
        """The file of the weights, downloaded if need be: before anything is built."""
        if self.weights is None:
            return None
        if self.weights != "imagenet":
            return find_weights(local_source(self.weights, self._op), self._op)
        if pretrained is None:
            raise ArgumentError(
                self._op, "there are no weights='imagenet' of these widths", hint=_HINT
            )
        require("h5py", self._op, "weights='imagenet' are HDF5 files", extra="keras")
        path, digest = pretrained.rest, pretrained.rest_digest
        if self.include_top:
            path, digest = pretrained.top, pretrained.top_digest
        name = path.rpartition("/")[2]
        try:
            return get_file(
                name, STORAGE + path, cache_subdir="models", file_hash=digest
            )
        except DataError as error:
            raise DataError(
                self._op,
                f"weights='imagenet' are not here and could not be downloaded ({name})",
                {"from": STORAGE + path, "cause": error.__cause__},
                hint=_HINT,
            ) from error

    # ------------------------------------------------------------------ parts
    def norm(self, x: Any, name: str | None = None, **options: Any) -> Any:
        """Batch normalization over the channels."""
        return layers.BatchNormalization(axis=self.axis, name=name, **options)(x)

    def channels(self, x: Any) -> int:
        """The number of channels."""
        return x.shape[self.axis]

    def same_pad(self, x: Any, kernel: int):
        """Zeros before a convolution of stride 2, more of them at the end.

        Returns:
            ((top, bottom), (left, right)).
        """
        start = 1 if self.axis == 3 else 2
        half = kernel // 2
        sides = x.shape[start : start + 2]
        odd = [1 if side is None else 1 - side % 2 for side in sides]
        return tuple((half - adjusted, half) for adjusted in odd)

    def pool(self, x: Any, *, named: bool = True) -> Any:
        """The end without a top."""
        if self.pooling == "avg":
            return layers.GlobalAveragePooling2D(name="avg_pool" if named else None)(x)
        if self.pooling == "max":
            return layers.GlobalMaxPooling2D(name="max_pool" if named else None)(x)
        return x

    def classify(self, x: Any, **options: Any) -> Any:
        """A dense layer on features, one output for each class."""
        return layers.Dense(
            self.classes, activation=self.activation, name="predictions", **options
        )(x)

    def end(self, x: Any, *, pooled: str | None = "avg_pool", named: bool = True):
        """The model: the mean over all places and a classifier, or no top.

        Args:
            x: The map of features.
            pooled: Name of the pooling in the top.
            named: Whether the pooling without a top has a name.
        """
        if self.include_top:
            x = self.classify(layers.GlobalAveragePooling2D(name=pooled)(x))
        else:
            x = self.pool(x, named=named)
        return self.finish(x)

    def finish(self, x: Any) -> Model:
        """The model that ends here, with its weights."""
        if self._file is None:
            return self._network(x)
        with registry.reading_file():  # no first weights
            model = self._network(x)
        model.load_weights(self._file)
        materialize(model)
        place(model)
        return model

    def _network(self, x: Any) -> Model:
        """The graph, which knows its images if it begins with them."""
        shape, last = self.input.shape, self.axis == 3
        channels, scaling = shape[self.axis], self.scaling
        if self._inputs is not self.input or channels is None:
            return Model(self._inputs, x, name=self.name)
        if not isinstance(scaling, Scaling):
            scaling = Scaling.of_mode(scaling, channels)
        sides = (shape[1], shape[2]) if last else (shape[2], shape[3])
        images = ImageFormat(
            *(self._op, sides, channels, scaling),
            classes=self.classes,
            has_top=self.include_top,
            channels_last=last,
        )
        return ImageNetwork(self._inputs, x, images=images, name=self.name)


_Maker = TypeVar("_Maker", bound=Callable[..., Model])


class Preprocessing(Protocol):
    """A family's function that makes of pixels what its networks take."""

    def __call__(self, x: Any, data_format: str | None = None) -> Any: ...


class Architecture(Protocol):
    """A function that makes a network, with the arguments that most of them have."""

    def __call__(
        self,
        include_top: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        input_shape: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        name: str = ...,
    ) -> Model: ...


def variant(
    build: Callable[..., Model], function: str, default: str, about: str, **settings
) -> Architecture:
    """A function with the arguments that most applications have.

    Args:
        build: The family's builder; it is called with the function's name, the
            arguments in order, and the settings.
        function: Name of the function.
        default: Name of the model by default.
        about: First line of its documentation, and the source.
        **settings: What makes this member of the family.
    """

    def make(
        include_top: bool = True,
        weights: Any = "imagenet",
        input_tensor: Any = None,
        input_shape: Any = None,
        pooling: str | None = None,
        classes: int = 1000,
        classifier_activation: Any = "softmax",
        name: str = default,
    ) -> Model:
        return build(
            (
                function,
                include_top,
                weights,
                input_tensor,
                input_shape,
                pooling,
                classes,
                classifier_activation,
                name,
            ),
            **settings,
        )

    return describe(make, function, about, build.__module__)


def describe(
    make: _Maker, function: str, about: str, module: str, **own: str
) -> _Maker:
    """The function, with its name and documentation.

    Args:
        make: The function; each of its arguments is told of.
        function: Its name.
        about: First line of its documentation, and the source.
        module: Where users find it.
        **own: What is said of arguments that not all applications have.
    """
    make.__name__ = make.__qualname__ = function
    make.__module__ = module
    said = _ARGUMENTS | own
    entries = [
        f"    {name}: {said[name]}" for name in inspect.signature(make).parameters
    ]
    first, _, rest = about.partition("\n\nSource: ")
    parts = [first, "", "Args:", *entries, _RAISES.format(function)]
    make.__doc__ = "\n".join([*parts, f"Source: {rest}"] if rest else parts)
    return api_boundary(make)


_PIXELS = """

Args:
    x: Images of any shape whose last axis, or that of ``data_format``, is the colours.
    data_format: ``"channels_last"`` or ``"channels_first"``; the one in the settings
        by default.
"""
_AS_THEY_ARE = f"""Images as they are: the model begins with what they need.{_PIXELS}
Example:
    >>> import numpy as np
    >>> preprocess_input(np.full((1, 1, 3), 255.0)).tolist()
    [[[255.0, 255.0, 255.0]]]
"""
_SCALED = f"""Pixels from 0 to 255 as this network takes them.

It is ``imagenet_utils.preprocess_input(x, data_format, mode="{{}}")``.{_PIXELS}
Raises:
    ShapeError: The images have other than three colours.

Example:
    >>> import numpy as np
    >>> preprocess_input(np.zeros((2, 8, 8, 3))).shape
    (2, 8, 8, 3)
"""


def preprocessing(mode: str | None) -> Preprocessing:
    """A family's ``preprocess_input``; ``None`` where the model does it itself."""

    @api_boundary
    def preprocess_input(x: Any, data_format: str | None = None) -> Any:
        if mode is None:
            return x
        return imagenet_utils.preprocess_input(x, data_format, mode)

    preprocess_input.__doc__ = _AS_THEY_ARE if mode is None else _SCALED.format(mode)
    return preprocess_input
