"""Architectures that an attacker would put into a model file."""

import copy
from collections.abc import Iterator
from typing import Any

from tests.saving.corpus import Parts, sealed

NAMES = (
    "os.system",
    "posix.system",
    "subprocess.Popen",
    "builtins.eval",
    "eval",
    "exec",
    "__import__",
    "getattr",
    "open",
    "importlib.import_module",
    "pickle.loads",
    "numpy.load",
    "jax.numpy.load",
    "keras.utils.get_file",
    "keras.config.enable_unsafe_deserialization",
    "exburn.utils.get_file",
    "exburn.core.registry.register",
    "Sequential.__init__",
    "Dense.__class__",
    "../../Dense",
    "file:///etc/passwd",
    "",
    " ",
    "Dense\0",
    "CSVLogger",
    "ModelCheckpoint",
    "LambdaCallback",
    "_registry",
    "__class__",
)
PATHS = (
    "/etc/passwd",
    "/dev/zero",
    "../../etc/passwd",
    "http://127.0.0.1:9/words.txt",
    "file:///etc/passwd",
)
HUGE = 10**9


def layer(name: Any, **config: Any) -> dict:
    return {"class_name": name, "config": {"name": "gadget", **config}}


def entry(shape: Any, dtype: Any = "float32") -> dict:
    """An input that is called x."""
    config = {"batch_shape": list(shape), "dtype": dtype, "name": "x"}
    return {"class_name": "InputLayer", "config": config, "name": "x"}


def stack(*layers: Any, shape: Any = (None, 8), dtype: Any = "float32") -> dict:
    """A Sequential of the layers, on an input of this shape."""
    config = {
        "name": "model",
        "trainable": True,
        "layers": [entry(shape, dtype), *layers],
    }
    return {"class_name": "Sequential", "config": config, "calls": [], "built": True}


def named() -> Iterator[tuple[str, dict]]:
    """Classes and functions that must not be found."""
    for name in NAMES:
        yield f"class {name!r}", stack(layer(name))
        yield (
            f"registered name {name!r}",
            stack(layer("Dense", units=2) | {"registered_name": name or "x"}),
        )
        function = {"class_name": "function", "config": name}
        yield f"activation {name!r}", stack(layer("Dense", units=2, activation=name))
        yield f"function {name!r}", stack(layer("Lambda", function=function))
    for name in (None, 7, [], {}, ["Dense"], True, "activations>relu", "Adam", "Zeros"):
        yield f"class name {name!r}", stack(layer(name))
    for config in (None, 7, "units", [], ["units"], True):
        yield f"config {config!r}", stack({"class_name": "Dense", "config": config})
    for role in ("kernel_initializer", "kernel_regularizer", "kernel_constraint"):
        for value in ("os.system", 7, {"class_name": "os.system", "config": {}}, ["x"]):
            yield f"{role} {value!r}", stack(layer("Dense", units=2, **{role: value}))
    code = {
        "class_name": "__lambda__",
        "config": {"code": "4wEAAAA=", "defaults": None},
    }
    yield "a marshalled lambda", stack(layer("Lambda", function=code))
    yield "a lambda as text", stack(layer("Lambda", function="lambda x: x"))
    module = {"module": "os", "class_name": "system", "registered_name": None}
    yield "a Keras module path", stack({**module, "config": {"command": "true"}})
    yield "a module layer", stack(layer("ModuleLayer", module=layer("Dense", units=2)))
    yield "an unknown argument", stack(layer("Dense", units=2, evil=1))
    yield "not a model", layer("Dense", units=2)
    yield "an optimizer as a layer", stack(layer("Adam", learning_rate=0.1))


def reading() -> Iterator[tuple[str, dict]]:
    """Configurations that name files and addresses."""
    for path in PATHS:
        for kind in ("StringLookup", "IntegerLookup", "TextVectorization"):
            yield f"{kind} of {path}", stack(layer(kind, vocabulary=path))
        yield (
            f"Embedding of {path}",
            stack(layer("Embedding", input_dim=9, output_dim=2, weights=path)),
        )
        wrapped = layer("Bidirectional", layer=layer("LSTM", units=2), weights=path)
        yield f"Bidirectional of {path}", stack(wrapped, shape=(None, 5, 3))
        yield f"cache_dir {path}", stack(layer("Dense", units=2, cache_dir=path))


def bombs() -> Iterator[tuple[str, dict]]:
    """Sizes that would take all memory or time."""
    for units in (HUGE, 10**18, 2**70, -1, 0, 1.5, "9", None, [9], True, "1e9"):
        yield f"Dense({units!r})", stack(layer("Dense", units=units))
    image, series = (None, 32, 32, 3), (None, 16, 4)
    cases: dict[str, tuple[Any, dict]] = {
        "Embedding": (series[:2], {"input_dim": HUGE, "output_dim": HUGE}),
        "Conv2D": (image, {"filters": HUGE, "kernel_size": [3, 3]}),
        "Conv2D kernel": (image, {"filters": 3, "kernel_size": [HUGE, HUGE]}),
        "Conv2DTranspose": (image, {"filters": HUGE, "kernel_size": [9, 9]}),
        "LSTM": (series, {"units": HUGE}),
        "GRU": (series, {"units": HUGE}),
        "EinsumDense": (
            series[::2],
            {"equation": "ab,bc->ac", "output_shape": [HUGE], "bias_axes": "c"},
        ),
        "RepeatVector": ((None, 8), {"n": HUGE}),
        "UpSampling2D": (image, {"size": [HUGE, HUGE]}),
        "ZeroPadding2D": (image, {"padding": HUGE}),
        "Resizing": (image, {"height": HUGE, "width": HUGE}),
        "RandomGaussianBlur": (image, {"kernel_size": HUGE}),
        "RandAugment": (image, {"num_ops": HUGE}),
        "AugMix": (image, {"num_chains": HUGE, "chain_depth": HUGE}),
        "CategoryEncoding": ((None, 8), {"num_tokens": HUGE}),
        "Hashing": ((None, 8), {"num_bins": HUGE}),
        "Reshape": ((None, 8), {"target_shape": [HUGE, HUGE]}),
        "Permute": ((None, 8), {"dims": [HUGE]}),
        "Discretization": ((None, 8), {"num_bins": HUGE}),
        "SpectralNormalization": (
            (None, 8),
            {"layer": layer("Dense", units=2), "power_iterations": HUGE},
        ),
        "MultiHeadAttention": (series, {"num_heads": HUGE, "key_dim": HUGE}),
    }
    for name, (shape, config) in cases.items():
        yield f"huge {name}", stack(layer(name.split()[0], **config), shape=shape)
    for size in (HUGE, 2**40, 2**62, 2**64, 10**30, -1, "8", 1.5, [8], True, {}):
        dense = layer("Dense", units=2)
        yield f"an input of {size!r}", stack(dense, shape=(None, size))
    for rank in (33, 100, 1000):
        yield f"an input of rank {rank}", stack(layer("Flatten"), shape=(None,) * rank)
    for dtype in ("object", "O", "S1000000000", "V9999999999", "(9,)f4", 7, None, ""):
        dense = layer("Dense", units=2)
        yield f"an input of {dtype!r}", stack(dense, dtype=dtype)
    for dtype in ("object", "(1000000000,)f4", "S1000000000", "datetime64", 7, []):
        array = {"class_name": "__numpy__", "config": {"dtype": dtype, "value": [1]}}
        constant = {"class_name": "Constant", "config": {"value": array}}
        yield (
            f"an array of {dtype!r}",
            stack(layer("Dense", units=2, kernel_initializer=constant)),
        )
    inner = layer("Dense", units=2)
    for depth in range(60):
        inner = layer(f"m{depth}") | stack(inner)
    yield "sixty models in each other", inner
    plain = {"class_name": "Flatten", "config": {}}
    yield "nine thousand layers", stack(*[plain] * 9000)
    yield "thirty thousand layers", stack(*[plain] * 30_000)
    looped = {**layer("Dense", units=2), "shared_object_id": 0}
    yield "a layer in the stack twice", stack(looped, looped)


def graphs() -> Iterator[tuple[str, dict]]:
    """Functional models whose calls are wrong."""
    ref = tensor(["x", 0, 0])
    for name in (
        *NAMES[:12],
        "save",
        "load",
        "fromfile",
        "memmap",
        "while_loop",
        "map",
    ):
        yield f"operation {name!r}", graph([ref], operation=name)
    eager: dict[str, list[Any]] = {
        "zeros": [[HUGE, HUGE]],
        "ones": [[HUGE]],
        "arange": [HUGE],
        "eye": [HUGE],
        "full": [[HUGE], 1],
        "tri": [HUGE],
        "linspace": [0, 1, HUGE],
        "hamming": [HUGE],
        "kaiser": [HUGE, 1.0],
        "identity": [HUGE],
    }
    for name, values in eager.items():
        yield f"eager {name}", graph(values, operation=name)
    for name, values in {
        "split": [HUGE],
        "array_split": [HUGE],
        "tile": [[HUGE]],
        "repeat": [HUGE],
        "one_hot": [HUGE],
        "vander": [HUGE],
        "pad": [[[HUGE, HUGE]] * 2],
        "unstack": [HUGE],
        "gaussian_blur": [[HUGE, HUGE]],
        "broadcast_to": [[HUGE, HUGE]],
        "reshape": [[HUGE, HUGE]],
    }.items():
        yield f"huge {name}", graph([ref, *values], operation=name, size=HUGE)
    places: list[Any] = [["x", 1, 0], ["x", 0, 1], ["x", 0, -1], ["x", -1, 0]]
    places += [["y", 0, 0], ["n", 0, 0], ["x", 0], [[], 0, 0], [], None, 7, "x", {}]
    for place in places:
        yield f"a reference to {place}", graph([tensor(place)])
    for kind in ("tuple", "dict", "slice"):
        for items in (1, [1], None, "x", [[[], ref]]):
            value = {"class_name": f"__{kind}__", "items": items}
            yield f"an argument {value}", graph([value])
    for value in ({"class_name": "__evil__"}, {"class_name": []}, {}, 7, None):
        yield f"an argument {value}", graph([value])
    for name in ("missing", None, 7, {}, [], {"class_name": "Dense", "config": {}}):
        yield f"an operation {name!r}", graph([ref], operation=name)
    for order in ("x", [], {}):
        yield f"a call in the order {order!r}", graph([ref], order=order)
    for ends in (["n", 9, 0], ["y", 0, 0], [], {}, None, 1, [["n", 0, 0], 7]):
        yield f"outputs {ends}", graph([ref], outputs=ends)
        if ends != {}:
            yield f"inputs {ends}", graph([ref], inputs=ends)


def tensor(place: Any) -> dict:
    config = {"shape": [None, 8], "keras_history": place}
    return {"class_name": "__keras_tensor__", "config": config}


def graph(
    args: list,
    *,
    operation: Any = "a layer",
    size: Any = 8,
    inputs: Any = ("x", 0, 0),
    outputs: Any = ("n", 0, 0),
    order: Any = 0,
) -> dict:
    """One call with these arguments, of a layer or of an operation."""
    called = layer("Dense", units=2) | {"name": "n"}
    if operation != "a layer":
        called["operation"] = operation
    # The second is never asked for; it has the order something to differ from.
    nodes = [{"args": args, "kwargs": {}, "order": o} for o in (order, 1)]
    config = {
        "name": "model",
        "trainable": True,
        "layers": [
            entry([None, size]) | {"inbound_nodes": []},
            called | {"inbound_nodes": nodes},
        ],
        "input_layers": inputs,
        "output_layers": outputs,
    }
    return {"class_name": "Model", "config": config, "calls": [], "built": True}


def architectures(good: bytes) -> Iterator[tuple[str, bytes]]:
    """All of them as files, with digests that fit."""
    parts = Parts(good)
    for kind in (named, reading, bombs, graphs):
        for name, model in kind():
            about = copy.deepcopy(parts.about)
            about["model"] = model
            yield name, sealed(parts.header, parts.payload, about)
