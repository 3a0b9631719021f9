"""Keras' configurations, of versions 2 and 3, with the arguments that ours have.

Keras 3 knows most of what is here from its own reading of older files: arguments that
were renamed, left out or meant for TensorFlow, and calls as nested lists. What is told
apart is told by content: Keras 2.13 to 2.15 write old arguments into new files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from exburn.core import registry
from exburn.errors import FileFormatError

Config = dict[str, Any]
_TENSOR = "__keras_tensor__"


def modernize(description: Any) -> Any:
    """A description of an object as Keras would write it today.

    Raises:
        FileFormatError: It holds code, or what only TensorFlow has.
    """
    if isinstance(description, list):
        return [modernize(one) for one in description]
    if not isinstance(description, dict):
        return description
    name = description.get("class_name")
    if not isinstance(name, str) or "config" not in description:
        return {key: modernize(value) for key, value in description.items()}
    if name.startswith("__") or name == "function":
        return description
    modern = dict(description)
    modern.pop("__passive_serialization__", None)
    own = registry.custom_class(description)
    if own is None:
        modern.pop("build_config", None)  # the calls tell
        name = modern["class_name"] = name.rpartition(">")[2]
    config = modern["config"]
    if isinstance(config, list) and name == "Sequential":  # before Keras 2.2.3
        config = {"layers": config}
    config = modernize({} if config is None else config)
    if own is None and isinstance(config, dict):
        name, config = _to_current(name, config)
        modern["class_name"] = name
    if isinstance(config, dict) and isinstance(config.get("layers"), list):
        config = _with_calls(config)
    modern["config"] = config
    return modern


def _to_current(name: str, config: Config) -> tuple[str, Config]:
    """Today's class of Keras', and its arguments."""
    if name in _ABSENT:
        raise FileFormatError(
            "load_model",
            f"the layer {config.get('name')!r} is a {name}, {_ABSENT[name]}",
        )
    config = dict(config)
    if isinstance(config.get("dtype"), dict):
        config["dtype"] = _policy(config["dtype"])
    if (change := _CHANGES.get(name)) is not None:
        config = change(config)
    for key in _GONE.get(name, ()):
        config.pop(key, None)
    for key in ("time_major", "causal", "renorm"):
        if config.pop(key, False):
            raise FileFormatError(
                "load_model", f"{name}({key}=True) has no counterpart here"
            )
    return _RENAMED.get(name, name), config


def _policy(description: Config) -> Any:
    """Keras 2 called its policies so."""
    if description.get("class_name") in ("Policy", "PolicyV1"):
        return description["config"]["name"]
    return description


# ---------------------------------------------------------------------- layers
_TENSORFLOW = "an operation of TensorFlow's, which has no counterpart here"
_ABSENT = {
    **dict.fromkeys(
        ("TFOpLambda", "SlicingOpLambda", "TensorFlowOpLayer"), _TENSORFLOW
    ),
    "CuDNNLSTM": "whose weights only cuDNN reads: save it from Keras as an LSTM",
    "CuDNNGRU": "whose weights only cuDNN reads: save it from Keras as a GRU",
    "LocallyConnected1D": "which Keras 3 has no more",
    "LocallyConnected2D": "which Keras 3 has no more",
}
_RENAMED = {
    "BatchNormalizationV1": "BatchNormalization",
    "BatchNormalizationV2": "BatchNormalization",
    "SyncBatchNormalization": "BatchNormalization",
    "ThresholdedReLU": "ReLU",
    "LSTMV2": "LSTM",
    "GRUV2": "GRU",
}
_KERNEL = [f"kernel_{what}" for what in ("initializer", "regularizer", "constraint")]
_SHAPES = [f"{what}_shape" for what in ("query", "key", "value")]
_RECURRENT = ["implementation"]
_RECURRENT_LAYERS = frozenset(
    "RNN SimpleRNN LSTM GRU Bidirectional ConvLSTM1D ConvLSTM2D ConvLSTM3D".split()
)
_GONE: dict[str, list[str]] = {
    **dict.fromkeys(("SeparableConv1D", "SeparableConv2D"), [*_KERNEL, "groups"]),
    **dict.fromkeys(("DepthwiseConv1D", "DepthwiseConv2D"), [*_KERNEL, "groups"]),
    **{f"Conv{n}DTranspose": ["groups"] for n in (1, 2, 3)},
    **dict.fromkeys(("MultiHeadAttention", "GroupQueryAttention"), _SHAPES),
    **dict.fromkeys(("LSTM", "GRU", "SimpleRNN", "LSTMV2", "GRUV2"), _RECURRENT),
    **dict.fromkeys(("LSTMCell", "GRUCell", "SimpleRNNCell"), _RECURRENT),
    **{f"ConvLSTM{n}D": _RECURRENT for n in (1, 2, 3)},
    "RNN": _RECURRENT,
    "Embedding": ["input_length"],
}


def _input(config: Config) -> Config:
    config["batch_shape"] = config.pop("batch_input_shape", config.get("batch_shape"))
    return {
        k: v for k, v in config.items() if k not in ("type_spec", "ragged", "sparse")
    }


def _normalization(config: Config) -> Config:
    dropped_options = ("fused", "virtual_batch_size", "adjustment", "renorm_clipping")
    config = {
        k: v
        for k, v in config.items()
        if k not in (*dropped_options, "renorm_momentum")
    }
    axis = config.get("axis", -1)
    return config | {"axis": axis[0] if isinstance(axis, list) else axis}


def _add_synchronized(config: Config) -> Config:
    return _normalization(config) | {"synchronized": True}


def _layer_normalization(config: Config) -> Config:
    axis = config.get("axis", -1)
    if isinstance(axis, list) and len(axis) == 1:
        config["axis"] = axis[0]
    return config


def _leaky(config: Config) -> Config:
    if "alpha" in config:
        config["negative_slope"] = config.pop("alpha")
    return config


def _convert_threshold(config: Config) -> Config:
    config["threshold"] = config.pop("theta", 1.0)
    return config


def _add_reset_after(config: Config) -> Config:
    # Keras 2.0 had no other kind, and no such argument.
    return {"reset_after": False} | config


def _lambda(config: Config) -> Config:
    function = config.get("function")
    if isinstance(function, list) or (
        isinstance(function, dict) and function.get("class_name") == "__lambda__"
    ):
        raise FileFormatError(
            "load_model",
            f"the Lambda layer {config.get('name')!r} holds Python code, which is "
            "not run",
            hint="Build the same model here, then model.load_weights(path).",
        )
    if isinstance(function, str):
        config["function"] = registry.describe_function(function)
    keys = ("module", "function_type", "output_shape_type", "output_shape_module")
    return {k: v for k, v in config.items() if k not in keys}


def _sequential(config: Config) -> Config:
    """The shape of the first layer as an input of its own."""
    layers = [dict(entry) for entry in config["layers"]]
    shape = None
    for entry in layers:
        if isinstance(entry.get("config"), dict):
            inner = dict(entry["config"])
            input_shape = inner.pop("batch_input_shape", None)
            shape = shape or input_shape
            entry["config"] = inner
    if layers and layers[0].get("class_name") != "InputLayer" and shape is not None:
        start = {"batch_shape": shape, "dtype": "float32"}
        layers.insert(0, {"class_name": "InputLayer", "config": start})
    if len(layers) > 1 and layers[1].get("class_name") == "Embedding":
        # Its input was said to be of floats, and was cut down to integers.
        start = {**layers[0]["config"], "dtype": "int32"}
        layers[0] = {**layers[0], "config": start}
    return config | {"layers": layers}


_CHANGES: dict[str, Callable[[Config], Config]] = {
    "InputLayer": _input,
    "BatchNormalization": _normalization,
    "BatchNormalizationV1": _normalization,
    "BatchNormalizationV2": _normalization,
    "SyncBatchNormalization": _add_synchronized,
    "LayerNormalization": _layer_normalization,
    "LeakyReLU": _leaky,
    "ThresholdedReLU": _convert_threshold,
    "GRU": _add_reset_after,
    "GRUV2": _add_reset_after,
    "GRUCell": _add_reset_after,
    "Lambda": _lambda,
    "Sequential": _sequential,
}


# ---------------------------------------------------------------------- calls
def _with_calls(config: Config) -> Config:
    """A model's calls in today's form, where they are nested lists."""
    entries = config["layers"]
    if not all(isinstance(e, dict) and "inbound_nodes" in e for e in entries):
        return config
    result = dict(config)
    result["layers"] = [
        {
            **entry,
            **({"module": "keras.ops"} if _is_operation(entry) else {}),
            "inbound_nodes": [_call(entry, node) for node in entry["inbound_nodes"]],
        }
        for entry in entries
    ]
    for key in ("input_layers", "output_layers"):
        ends = result.get(key)
        if isinstance(ends, list) and len(ends) == 1 and isinstance(ends[0], list):
            result[key] = ends[0]
    return result


def _is_operation(entry: Config) -> bool:
    """Whether an entry without a module is an operation of Keras 3, and no layer.

    Some have the names of layers, which tell whether they are trained, or their dtype.
    """
    config = entry.get("config")
    if "module" in entry or entry.get("class_name") == "InputLayer":
        return False
    if registry.custom_class(entry) is not None or not isinstance(config, dict):
        return False
    if {"trainable", "layers"} & {*config}:
        return False
    name = str(entry.get("class_name"))
    namesakes = registry.is_registered(f"ops>{name.lower()}") and "dtype" not in config
    return namesakes or not registry.is_registered(name)


def _call(entry: Config, node: Any) -> Any:
    if isinstance(node, dict) and "args" in node:
        return node
    kwargs: Config = {}

    def tensor(value: Any) -> Any:
        """A place in a first argument; the last part of it are further arguments."""
        if _is_place(value):
            kwargs.update(value[3] if len(value) == 4 else {})
            return value[2] if value[0] == "_CONSTANT_VALUE" else _tensor(value)
        if isinstance(value, dict):
            return {key: tensor(one) for key, one in value.items()}
        if isinstance(value, list):
            return [tensor(one) for one in value]
        return value

    first = tensor(node)
    if isinstance(first, list) and len(first) == 1:
        first = first[0]
    further = {k: _arguments(v) for k, v in kwargs.items() if v is not None}
    if entry["class_name"] in _RECURRENT_LAYERS and isinstance(first, list):
        first, *states = first  # states that are tensors came with the input
        further["initial_state"] = states
    return {"args": [first], "kwargs": further}


def _arguments(value: Any) -> Any:
    if _is_place(value):
        return _tensor(value)
    if isinstance(value, list):
        return [_arguments(one) for one in value]
    if isinstance(value, dict):
        return {key: _arguments(one) for key, one in value.items()}
    return value


def _is_place(value: Any) -> bool:
    """Whether an entry is ``[layer, call, tensor]``, and arguments maybe."""
    if not isinstance(value, list) or len(value) not in (3, 4):
        return False
    if not isinstance(value[0], str):
        return False
    constant = value[0] == "_CONSTANT_VALUE"
    return constant or (type(value[1]), type(value[2])) == (int, int)


def _tensor(place: list) -> Config:
    return {"class_name": _TENSOR, "config": {"keras_history": place[:3]}}


# ---------------------------------------------------------------------- compile
_COMPILED = ("loss", "loss_weights", "metrics", "weighted_metrics")
_OF_OPTIMIZERS = ("jit_compile", "is_legacy_optimizer")


def compile_settings(config: Mapping[str, Any], outputs: list[str]) -> Config:
    """What ``compile_from_config`` takes, of Keras' settings.

    How many steps a program makes, and whether it is compiled, is ours to choose.

    Args:
        config: Of Keras 3, ``compile_config``, or ``training_config`` of a legacy file.
        outputs: Names of the model's outputs.

    Raises:
        FileFormatError: There is no optimizer.
    """
    optimizer = config.get("optimizer_config") or config.get("optimizer")
    if optimizer is None:
        raise FileFormatError("load_model", "the settings of compile are incomplete")
    settings = {key: _measures(config.get(key)) for key in _COMPILED}
    for key in ("metrics", "weighted_metrics"):
        measures = settings[key]
        nested = isinstance(measures, list) and len(measures) == len(outputs)
        if nested and all(isinstance(one, list) for one in measures):  # of each output
            by_output = [
                _without_prefix(*pair) for pair in zip(measures, outputs, strict=True)
            ]
            settings[key] = by_output if len(outputs) > 1 else by_output[0]
    if config.get("run_eagerly"):
        settings["run_eagerly"] = True
    return settings | {"optimizer": _optimizer(optimizer)}


def _without_prefix(measures: list, output: str) -> list:
    """Metrics as they were given: Keras 2 had put the output's name before theirs."""
    for measure in measures:
        config = measure.get("config") if isinstance(measure, dict) else None
        if isinstance(config, dict) and isinstance(config.get("name"), str):
            config["name"] = config["name"].removeprefix(f"{output}_")
    return measures


def _optimizer(description: Any) -> Any:
    if not isinstance(description, Mapping):
        return {"class_name": description, "config": {}}
    modern = modernize(dict(description))
    config = {k: v for k, v in modern["config"].items() if k not in _OF_OPTIMIZERS}
    if "lr" in config:
        config["learning_rate"] = config.pop("lr")
    decay = config.pop("decay", 0.0)
    if decay:
        schedule = {
            "initial_learning_rate": config.get("learning_rate", 0.001),
            "decay_steps": 1,
            "decay_rate": decay,
        }
        kind = "InverseTimeDecay"
        config["learning_rate"] = {"class_name": kind, "config": schedule}
    modern["config"] = {k: v for k, v in config.items() if v is not None}
    return modern


def _measures(description: Any) -> Any:
    """Losses or metrics, by name or described, nested in any way."""
    if isinstance(description, list):
        return [_measures(one) for one in description]
    if not isinstance(description, dict):
        return description
    name = description.get("class_name")
    if not isinstance(name, str) or "config" not in description:
        return {key: _measures(one) for key, one in description.items()}
    modern = modernize(description)
    if not isinstance(modern["config"], dict):
        return modern
    config = dict(modern["config"])
    if config.get("reduction") == "auto":
        config["reduction"] = "sum_over_batch_size"
    if name in ("MeanMetricWrapper", "LossFunctionWrapper"):
        if isinstance(config.get("fn"), str):
            config["fn"] = registry.describe_function(config["fn"])
        if name == "LossFunctionWrapper":
            return config["fn"]
    elif any(
        registry.is_registered(f"{kind}>{name}") for kind in ("losses", "metrics")
    ):
        config.pop("fn", None)
    return {**modern, "config": config}
