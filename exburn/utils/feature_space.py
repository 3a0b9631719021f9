"""Columns of a table as the numbers that a model learns from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from exburn import backend
from exburn.core import registry
from exburn.core.checks import check_choice
from exburn.core.registry import register_builtin
from exburn.core.tensorflow_graphs import maps_datasets
from exburn.errors import ArgumentError, DataError, NotBuiltError, unknown_name
from exburn.layers.contract.host import is_traced
from exburn.layers.core.identity import Identity, Rescaling
from exburn.layers.core.input import Input
from exburn.layers.merging.concatenate import Concatenate
from exburn.layers.preprocessing.category_encoding import CategoryEncoding
from exburn.layers.preprocessing.discretization import Discretization
from exburn.layers.preprocessing.hashing import HashedCrossing, Hashing
from exburn.layers.preprocessing.integer_lookup import IntegerLookup
from exburn.layers.preprocessing.normalization import Normalization
from exburn.layers.preprocessing.string_lookup import StringLookup
from exburn.layers.preprocessing.text_vectorization import TextVectorization
from exburn.module.layer import Layer
from exburn.module.variable import Static
from exburn.saving import save_model
from exburn.utils.columns import (
    Kept,
    as_array,
    as_table,
    first_row,
    in_batches,
    join_columns,
    read_column,
    read_tables,
    with_axes,
)
from exburn.utils.features import Cross, Feature


@register_builtin
class FeatureSpace(Layer):
    """Turns the columns of a table into one vector for each row, or into one a column.

    Each column has a kind: a string, or what one of the class methods returns.

    ==========================  ====================================================
    ``"float"``                 the numbers as they are
    ``"float_rescaled"``        ``scale * x + offset``
    ``"float_normalized"``      less their mean, over their standard deviation
    ``"float_discretized"``     the bins that they fall into
    ``"integer_categorical"``   integers, numbered by a vocabulary
    ``"string_categorical"``    strings, numbered by a vocabulary
    ``"integer_hashed"``        integers, put into bins by their hash
    ``"string_hashed"``         strings, put into bins by their hash
    ==========================  ====================================================

    ``adapt`` learns means, bins and vocabularies. Categories become vectors with one
    entry for each unless a feature's ``output_mode`` is ``"int"``.

    On data it works on the host and returns NumPy arrays: map a dataset by it, or
    encode a whole table before ``fit``. ``get_encoded_features`` are symbols, with
    which a model begins at the raw columns.

    Args:
        features: The kind of each column, by its name.
        output_mode: ``"concat"`` for one vector, ``"dict"`` for a dict by the names of
            the features and crosses.
        crosses: Combinations of features that become features themselves: tuples of
            names, or what ``FeatureSpace.cross`` returns.
        crossing_dim: Number of bins of crosses that are tuples.
        hashing_dim: Number of bins of hashed features that are strings.
        num_discretization_bins: The same for ``"float_discretized"``.
        name: Name of the layer.

    Shape:
        a frame, whose other columns are left out, or a dict of columns [batch] or
        [batch, n] → [batch, entries] float32, the features in the order of their names
        and the crosses behind them; of single values without a batch axis [entries]

    Raises:
        ArgumentError: An argument is out of range, or a feature stays numbers of
            categories although the vectors are joined.
        DataError: A column is missing, or there is one that is no feature.
        NotBuiltError: Data came before ``adapt``.

    Example:
        >>> table = {"age": [20.0, 40.0], "town": ["Delft", "Ghent"]}
        >>> space = FeatureSpace(
        ...     {"age": "float_normalized", "town": "string_categorical"},
        ... )
        >>> space.adapt(table)
        >>> space(table).tolist()
        [[-1.0, 0.0, 0.0, 1.0], [1.0, 0.0, 1.0, 0.0]]
        >>> import pandas
        >>> space(pandas.DataFrame(table))[0].tolist()
        [-1.0, 0.0, 0.0, 1.0]

    Source: ``keras.utils.FeatureSpace``, which needs TensorFlow.
    """

    def __init__(
        self,
        features: Any,
        output_mode: str = "concat",
        crosses: Any = None,
        crossing_dim: int = 32,
        hashing_dim: int = 32,
        num_discretization_bins: int = 32,
        name: Any = None,
    ):
        super().__init__(name=name)
        op = "FeatureSpace"
        if not features:
            raise ArgumentError(op, "there are no features")
        self.output_mode = check_choice(
            op, "output_mode", output_mode, ("concat", "dict")
        )
        self.crossing_dim = crossing_dim
        self.hashing_dim = hashing_dim
        self.num_discretization_bins = num_discretization_bins
        self._autocast = False
        kinds = {key: self._feature(key, kind) for key, kind in features.items()}
        self._modes = Static({k: (f.dtype, f.output_mode) for k, f in kinds.items()})
        preprocessors: dict[str, Any] = {
            k: kind.preprocessor for k, kind in kinds.items()
        }
        self.preprocessors = preprocessors
        preprocessor_names = {
            key for key, kind in kinds.items() if _is_given(kind.preprocessor)
        }
        self._given = Static(preprocessor_names)
        crossings = [self._cross(cross, kinds) for cross in crosses or ()]
        self._crosses = Static(crossings)
        self.crossers = {
            cross.name: HashedCrossing(cross.crossing_dim, name=cross.name)
            for cross in crossings
        }
        self.one_hot_encoders = {}
        self._symbols = Static(None)
        self._encoded = Static(
            (0, None)
        )  # whose they are: a copy has layers of its own

    def _feature(self, name: str, kind: Any) -> Feature:
        if isinstance(kind, dict):
            kind = registry.deserialize(kind)
        if isinstance(kind, Feature):
            return kind
        sizes = {
            "float_discretized": self.num_discretization_bins,
            "integer_hashed": self.hashing_dim,
            "string_hashed": self.hashing_dim,
        }
        if kind not in _KINDS:
            raise unknown_name("feature type", kind, _KINDS, op="FeatureSpace")
        size = (sizes[kind],) if kind in sizes else ()
        return getattr(type(self), kind)(*size, name=name)

    def _cross(self, cross: Any, features: Mapping[str, Any]) -> Cross:
        if isinstance(cross, dict):
            cross = registry.deserialize(cross)
        if not isinstance(cross, Cross):
            cross = Cross(cross, self.crossing_dim)
        for name in cross.feature_names:
            if name not in features:
                raise unknown_name("feature", name, features, op="FeatureSpace.cross")
        return cross

    # ------------------------------------------------------------------ kinds
    @classmethod
    def cross(
        cls, feature_names: Any, crossing_dim: Any, output_mode: str = "one_hot"
    ) -> Cross:
        """Combinations of features, hashed into ``crossing_dim`` bins."""
        return Cross(feature_names, crossing_dim, output_mode=output_mode)

    @classmethod
    def feature(cls, dtype: Any, preprocessor: Any, output_mode: Any) -> Feature:
        """A feature that a layer of yours reads; see :class:`Feature`."""
        return Feature(dtype, preprocessor, output_mode)

    @classmethod
    def float(cls, name: Any = None) -> Feature:
        """Numbers as they are."""
        name = _layer_name("float", name)
        return Feature("float32", Identity(dtype="float32", name=name), "float")

    @classmethod
    def float_rescaled(
        cls, scale: Any = 1.0, offset: Any = 0.0, name: Any = None
    ) -> Feature:
        """Numbers as ``scale * x + offset``."""
        name = _layer_name("float_rescaled", name)
        return Feature("float32", Rescaling(scale, offset, name=name), "float")

    @classmethod
    def float_normalized(cls, name: Any = None) -> Feature:
        """Numbers less their mean, over their standard deviation."""
        name = _layer_name("float_normalized", name)
        return Feature("float32", Normalization(axis=-1, name=name), "float")

    @classmethod
    def float_discretized(
        cls,
        num_bins: Any,
        bin_boundaries: Any = None,
        output_mode: str = "one_hot",
        name: Any = None,
    ) -> Feature:
        """Numbers as bins: ``num_bins`` that ``adapt`` chooses, or those between
        boundaries, with ``num_bins=None``.
        """
        name = _layer_name("float_discretized", name)
        layer = Discretization(bin_boundaries, num_bins, name=name)
        return Feature("float32", layer, output_mode)

    @classmethod
    def integer_categorical(
        cls,
        max_tokens: Any = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: Any = None,
    ) -> Feature:
        """Integers, numbered by how often they occur."""
        name = _layer_name("integer_categorical", name)
        layer = IntegerLookup(max_tokens, num_oov_indices, name=name)
        return Feature("int32", layer, output_mode)

    @classmethod
    def string_categorical(
        cls,
        max_tokens: Any = None,
        num_oov_indices: int = 1,
        output_mode: str = "one_hot",
        name: Any = None,
    ) -> Feature:
        """Strings, numbered by how often they occur."""
        name = _layer_name("string_categorical", name)
        layer = StringLookup(max_tokens, num_oov_indices, name=name)
        return Feature("string", layer, output_mode)

    @classmethod
    def string_hashed(
        cls, num_bins: Any, output_mode: str = "one_hot", name: Any = None
    ) -> Feature:
        """Strings, put into bins by their hash."""
        name = _layer_name("string_hashed", name)
        return Feature("string", Hashing(num_bins, name=name), output_mode)

    @classmethod
    def integer_hashed(
        cls, num_bins: Any, output_mode: str = "one_hot", name: Any = None
    ) -> Feature:
        """Integers, put into bins by their hash."""
        name = _layer_name("integer_hashed", name)
        return Feature("int32", Hashing(num_bins, name=name), output_mode)

    # ------------------------------------------------------------------ parts
    @property
    def features(self) -> dict[str, Feature]:
        """The features by their names."""
        return {
            name: Feature(dtype, self.preprocessors[name], mode)
            for name, (dtype, mode) in self._modes.value.items()
        }

    @property
    def crosses(self) -> list[Cross]:
        """The crosses, as they were given."""
        return list(self._crosses.value)

    @property
    def crosses_by_name(self) -> dict[str, Cross]:
        """The crosses by their names."""
        return {cross.name: cross for cross in self._crosses.value}

    @property
    def inputs(self) -> dict[str, Any]:
        """An ``Input`` for each feature, by its name."""
        if self._symbols.value is None:
            self._symbols = Static(
                {
                    name: Input((1,), dtype=dtype, name=name)
                    for name, (dtype, _) in self._modes.value.items()
                }
            )
        return self._symbols.value

    @property
    def encoded_features(self) -> Any:
        """What the inputs become; ``None`` before it was asked for."""
        owner, symbols = self._encoded.value
        return symbols if owner == id(self) else None

    # ------------------------------------------------------------------ adapt
    def adapt(self, dataset: Any, verbose: int = 1) -> None:
        """Learns means, bins and vocabularies.

        A column is read once for each feature that learns, so an iterator of batches,
        which can be read only once, is held in memory meanwhile.

        Args:
            dataset: A frame, a dict of arrays or lists, or a dataset or iterable of
                such tables; of tuples the first entry is taken.
            verbose: For Keras code: nothing is printed.

        Raises:
            DataError: There is no data, or a column is missing.
            ArgumentError: A feature does not fit the output mode.
        """
        op, texts = "FeatureSpace.adapt", self._texts()
        if isinstance(dataset, Iterator):
            dataset = Kept(dataset)
        sample = first_row(
            next(read_tables(op, dataset, texts), None), self._modes.value, op
        )
        self.one_hot_encoders = {}
        self._encoded = Static((0, None))
        for name in self._adaptable():
            columns = (
                read_column(op, table, name)
                for table in read_tables(op, dataset, texts)
            )
            self.preprocessors[name].adapt(in_batches(columns))
        self._encode(sample)  # builds the layers, and says now what does not fit
        self.built = True

    def _texts(self) -> dict[str, bool]:
        """For each feature, whether its column is read as text."""
        return {name: kind == "string" for name, (kind, _) in self._modes.value.items()}

    def _adaptable(self) -> list[str]:
        """Names of the features that learn from data."""
        return [
            name
            for name in self._modes.value
            if hasattr(self.preprocessors[name], "adapt")
            and name not in self._given.value
        ]

    def _prepare(self) -> None:
        if self.built:
            return
        if waiting := self._adaptable():
            raise NotBuiltError(
                self.name,
                "there are features that learn from data, and there was none yet",
                {"features": ", ".join(waiting)},
                hint="Call space.adapt(table) first.",
            )
        self.built = True

    # ------------------------------------------------------------------ symbols
    def get_inputs(self) -> dict[str, Any]:
        """``Input`` symbols of the columns, by their names.

        Raises:
            NotBuiltError: ``adapt`` was not called.
        """
        self._prepare()
        return self.inputs

    def get_encoded_features(self) -> Any:
        """Symbols computed from :meth:`get_inputs`, for the layers of a model.

        Raises:
            NotBuiltError: ``adapt`` was not called.
        """
        self._prepare()
        if self.encoded_features is None:
            self._encoded = Static((id(self), self._encode(self.inputs)))
        return self.encoded_features

    # ------------------------------------------------------------------ the layer
    @maps_datasets
    def __call__(self, data, training=None, mask=None):
        self._prepare()
        data = as_table(self.name, data, self._texts())
        if is_traced(dict(data)):
            return self._encode(data)
        columns = {name: as_array(name, x) for name, x in data.items()}
        single = [name for name, x in columns.items() if not x.ndim]
        encoded = self._encode({k: with_axes(x) for k, x in columns.items()})
        if not single:
            return encoded
        if self.output_mode == "concat":
            if len(encoded) != 1:
                raise DataError(
                    self.name, "a single value stands beside columns", {"it": single[0]}
                )
            return encoded[0]
        return {k: x[0] if len(x) == 1 else x for k, x in encoded.items()}

    def call(self, data):
        return self._encode(data)

    def _encode(self, data: Mapping[str, Any]) -> Any:
        self._check_names(data)
        read = {key: self._read(key, data[key]) for key in sorted(self._modes.value)}
        crossed = {
            cross.name: self.crossers[cross.name](
                [read[name] for name in cross.feature_names]
            )
            for cross in sorted(self._crosses.value, key=lambda cross: cross.name)
        }
        modes = {key: mode for key, (_, mode) in self._modes.value.items()}
        modes |= {cross.name: cross.output_mode for cross in self._crosses.value}
        encodings = {
            name: self._finish(name, value, modes[name])
            for name, value in {**read, **crossed}.items()
        }
        if self.output_mode == "dict":
            return encodings
        if is_traced(encodings):
            return Concatenate()(list(encodings.values()))
        return join_columns(self.name, encodings)

    def _check_names(self, data: Mapping[str, Any]) -> None:
        features = self._modes.value
        missing = [name for name in features if name not in data]
        extra = [name for name in data if name not in features]
        if missing or extra:
            raise DataError(
                self.name,
                "there is one column for each feature",
                {
                    "missing": ", ".join(missing) or "none",
                    "no feature": ", ".join(map(str, extra)) or "none",
                },
            )

    def _read(self, name: str, column: Any) -> Any:
        dtype, _ = self._modes.value[name]
        if isinstance(column, np.ndarray) and column.dtype.kind in "biu":
            if str(dtype).startswith("float"):
                column = column.astype(dtype)
        values = self.preprocessors[name](column)
        return values if is_traced(values) else np.asarray(values)

    def _finish(self, name: str, value: Any, mode: str) -> Any:
        whole = _is_whole(value)
        if mode == "one_hot":
            if not whole:
                raise ArgumentError(
                    self.name,
                    f"{name!r} has output_mode='one_hot', so that its layer returns "
                    f"integers, not {value.dtype}",
                    hint="Give it output_mode='float'.",
                )
            values = self._encoder(name)(value)
            return values if is_traced(values) else np.asarray(values)
        layer = self.preprocessors[name] if name in self._modes.value else None
        if whole and getattr(layer, "output_mode", "int") != "int":
            value, whole = value.astype(np.float32), False  # a vector of counts
        if self.output_mode == "concat" and (whole or _is_text(value)):
            raise ArgumentError(
                self.name,
                f"{name!r} is no vector of numbers, so that it cannot be joined with "
                f"others: it is {value.dtype}",
                hint="Give it output_mode='one_hot', or the space output_mode='dict'.",
            )
        return value

    def _encoder(self, name: str) -> CategoryEncoding:
        if name not in self.one_hot_encoders:
            layer = self.preprocessors[name] if name in self._modes.value else None
            layer = self.crossers[name] if layer is None else layer
            self.one_hot_encoders[name] = CategoryEncoding(
                self._number_of_categories(name, layer), output_mode="multi_hot"
            )
        return self.one_hot_encoders[name]

    def _number_of_categories(self, name: str, layer: Any) -> int:
        if isinstance(layer, IntegerLookup | StringLookup):
            return layer.vocabulary_size()
        if isinstance(layer, CategoryEncoding):
            return layer.num_tokens
        if isinstance(layer, Hashing | HashedCrossing):
            return layer.num_bins
        if isinstance(layer, Discretization) and layer.bin_boundaries is not None:
            return len(layer.bin_boundaries) + 1
        raise ArgumentError(
            self.name,
            f"how many categories {name!r} has is not known: its layer is "
            f"{type(layer).__name__}",
            hint="Give it output_mode='int'.",
        )

    # ------------------------------------------------------------------ files
    def save(self, filepath: Any, overwrite: bool = True) -> None:
        """Writes the layer with all that it has learned; ``load_model`` reads it.

        Args:
            filepath: The file; ``.exburn`` is appended if it has no suffix.
            overwrite: Whether an existing file may be replaced.

        Raises:
            NotBuiltError: ``adapt`` was not called.
        """
        self._prepare()
        save_model(self, filepath, overwrite=overwrite)

    def get_config(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "features": {k: registry.serialize(v) for k, v in self.features.items()},
            "output_mode": self.output_mode,
            "crosses": [registry.serialize(cross) for cross in self.crosses],
            "crossing_dim": self.crossing_dim,
            "hashing_dim": self.hashing_dim,
            "num_discretization_bins": self.num_discretization_bins,
            "learned": self._adaptable(),  # their layers' configurations do not tell
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None):
        config = dict(config)
        learned = config.pop("learned", ())
        with registry.custom_objects(custom_objects):
            space = cls(**config)
        space._given.value.difference_update(learned)
        return space


_KINDS = (
    "float",
    "float_rescaled",
    "float_normalized",
    "float_discretized",
    "integer_categorical",
    "string_categorical",
    "integer_hashed",
    "string_hashed",
)


def _layer_name(kind: str, name: str | None) -> str:
    if name is None:
        number = backend.get_uid(kind)
        name = kind if number == 1 else f"{kind}_{number - 1}"
    return f"{name}_preprocessor"


def _is_given(layer: Any) -> bool:
    """Whether a layer was told what it would learn."""
    if isinstance(layer, Normalization):
        return layer.input_mean is not None
    if isinstance(layer, Discretization):
        return layer.num_bins is None
    if isinstance(layer, IntegerLookup | StringLookup | TextVectorization):
        return bool(layer.get_vocabulary(include_special_tokens=False))
    return False


def _is_whole(value: Any) -> bool:
    return np.dtype(value.dtype).kind in "iu" if not _is_text(value) else False


def _is_text(value: Any) -> bool:
    return str(value.dtype) in ("string", "object") or str(value.dtype)[:2] == "<U"
