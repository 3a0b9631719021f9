"""Calls of what Keras' next release has and 3.15.1 has not, for either package.

Each takes the package, so that the same lines run on Keras and on ExBurn. What Keras
gives lies in ``values.npz``; ``record.py`` says how it is written.
"""

import numpy as np


def _floats(*shape, low=-2.0, high=2.0, seed=0):
    return np.random.default_rng(seed).uniform(low, high, shape).astype("float32")


X, Y = _floats(3, 4), _floats(3, 4, seed=1)
POSITIVE = _floats(3, 4, low=0.1, high=3.0)
MATRICES = _floats(2, 3, 3) + 3 * np.eye(3, dtype="float32")
IMAGES = np.arange(2 * 5 * 7 * 3, dtype="float32").reshape(2, 5, 7, 3)
VOLUMES = np.arange(2 * 4 * 5 * 6 * 2, dtype="float32").reshape(2, 4, 5, 6, 2)
LOGITS = _floats(6, 4)
PROBABILITIES = np.exp(LOGITS) / np.exp(LOGITS).sum(-1, keepdims=True)
LABELS = np.array([0, 3, 1, 1, 2, 0], "int32")
CODES = np.random.default_rng(0).integers(-1, 2, (7, 6)).astype("int8")


def _op(name, *args, **kwargs):
    def call(keras):
        module = keras.ops
        for part in name.split("."):
            module = getattr(module, part)
        return module(*args, **kwargs)

    return call


def _patches(x, size, data_format="channels_last", **options):
    """Images, in windows and together again."""

    def call(keras):
        image = keras.ops.image
        first = data_format == "channels_first"
        given = np.moveaxis(x, -1, 1 if x.ndim > len(size) + 1 else 0) if first else x
        padding = options.get("padding", "valid")
        windows = image.extract_patches(
            given, size, padding=padding, data_format=data_format
        )
        return image.reconstruct_patches(
            windows, size, data_format=data_format, **options
        )

    return call


def _gradient(argnums, *args):
    def call(keras):
        def product(x, y):
            return keras.ops.sin(x) * keras.ops.sum(y["a"] ** 2, axis=-1)

        return keras.ops.grad(product, argnums)(*args)

    return call


def _loss(name, *args, **options):
    """Values row by row, and reduced with and without weights of rows."""

    def call(keras):
        made = getattr(keras.losses, name)(**options)
        rows = getattr(keras.losses, name)(reduction=None, **options)
        weights = np.arange(1.0, 7.0, dtype="float32")
        return [rows(*args), made(*args), made(*args, sample_weight=weights)]

    return call


def _loss_function(name, *args, **options):
    return lambda keras: getattr(keras.losses, name)(*args, **options)


_SMOOTHED = "SparseCategoricalCrossentropy"
_FOCAL = "SparseCategoricalFocalCrossentropy"
_MAPS = _floats(2, 4, 3)  # classes along axis 1
_PIXELS = np.array([[0, 3, 1], [2, 2, 9]], "int32")

OPS = {
    "column_stack": [
        _op("column_stack", [X, Y]),
        _op("column_stack", [X[0], Y[0]]),
        _op("numpy.column_stack", [X[:, 0], Y]),
    ],
    "copysign": [
        _op("copysign", X, Y),
        _op("copysign", X, -0.0),
        _op("numpy.copysign", np.array([1, -2, 3]), np.array([-1, 1, 0])),
    ],
    "cov": [
        _op("cov", X),
        _op("cov", X[0]),
        _op("cov", X[:1]),
        _op("numpy.cov", np.arange(6, dtype="int32").reshape(2, 3) ** 2),
    ],
    "float_power": [
        _op("float_power", POSITIVE, Y),
        _op("float_power", np.array([2, 3, 4]), np.array([-1, -2, 2])),
        _op("numpy.float_power", POSITIVE, 2),
    ],
    "gammainc": [
        _op("gammainc", POSITIVE, POSITIVE[::-1]),
        _op("gammainc", POSITIVE, 2.0),
    ],
    "lgamma": [_op("lgamma", POSITIVE), _op("lgamma", X)],
    "matrix_power": [
        *(_op("matrix_power", MATRICES, n) for n in (-2, 0, 1, 5)),
        _op("linalg.matrix_power", MATRICES[0], 3),
    ],
    "grad": [
        _gradient(0, X[:, 0], {"a": POSITIVE}),
        _gradient(-1, X[:, 0], {"a": POSITIVE}),
        _gradient((1, 0), X[:, 0], {"a": POSITIVE}),
        lambda keras: keras.ops.grad(keras.ops.tanh)(keras.Variable(X)),
    ],
    "reconstruct_patches": [
        _patches(IMAGES, (2, 3)),
        _patches(IMAGES[0], (2, 3), output_size=(4, 6)),
        _patches(IMAGES, (2, 3), output_size=(5, 7), padding="same"),
        _patches(IMAGES, (2, 3), "channels_first", output_size=(5, 7), padding="same"),
        _patches(IMAGES[0], (3, 3), "channels_first"),
        _patches(VOLUMES, (2, 2, 3)),
        _patches(VOLUMES, (3, 2, 4), output_size=(4, 5, 6), padding="same"),
        _patches(VOLUMES[0], (3, 2, 4), "channels_first"),
    ],
    "amax": [
        _op("amax", X, axis=1, initial=1.0),
        _op("numpy.amax", X, initial=3.0, keepdims=True),
    ],
    "amin": [
        _op("amin", X, axis=0, initial=-1.0),
        _op("numpy.amin", X, initial=-3.0),
    ],
    "top_k": [
        _op("top_k", np.array([[3, 1, 3, 2, 3]]), 2, is_stable=True),
        lambda keras: keras.ops.top_k(X, 2, is_stable=False)[0],
    ],
}

LOSSES = {
    "label_smoothing": [
        _loss(_SMOOTHED, LABELS, PROBABILITIES, label_smoothing=0.1),
        _loss(_SMOOTHED, LABELS, LOGITS, label_smoothing=0.3, from_logits=True),
        _loss(
            _SMOOTHED,
            LABELS,
            LOGITS,
            label_smoothing=0.2,
            from_logits=True,
            ignore_class=1,
        ),
        _loss_function(
            "sparse_categorical_crossentropy",
            LABELS[:, None],
            PROBABILITIES,
            label_smoothing=1.0,
            ignore_class=0,
        ),
    ],
    "focal": [
        _loss(_FOCAL, LABELS, PROBABILITIES),
        _loss(_FOCAL, LABELS[:, None], PROBABILITIES, alpha=1.0, gamma=0.0),
        _loss(_FOCAL, LABELS, LOGITS, from_logits=True, gamma=1.5),
        _loss(_FOCAL, LABELS, PROBABILITIES * 3, alpha=[0.1, 0.2, 0.3, 0.4]),
        _loss(_FOCAL, LABELS, LOGITS, from_logits=True, ignore_class=1),
        _loss_function(
            "sparse_categorical_focal_crossentropy",
            _PIXELS,
            _MAPS,
            from_logits=True,
            axis=1,
            ignore_class=9,
            alpha=[0.1, 0.2, 0.3, 0.4],
        ),
        _loss_function(  # a label that is no class
            "sparse_categorical_focal_crossentropy", [0, 4, -1], PROBABILITIES[:3]
        ),
    ],
}

_ROWS = np.array([[0, 2, 1, 1], [1, 0, 0, 2], [2, 2, 0, 1]])
_CENTRES = np.array([[2, 1], [0, 4], [6, 3]], "float32") / [8, 6]  # of 8 × 6 pixels


def _mosaic(data, **options):
    """A mosaic whose images and points are given; each package draws in its own way."""

    def call(keras):
        class Given(keras.layers.Mosaic):
            def get_random_transformation(self, data, training=True, seed=None):
                return {
                    "permutation_order": _ROWS,
                    "mosaic_centers": np.float32(_CENTRES),
                    "input_shape": data["images"].shape,
                }

            def parameters(self, images, training):
                x, y = _CENTRES.T
                shares = [x * y, (1 - x) * y, x * (1 - y), (1 - x) * (1 - y)]
                drawn = {"rows": _ROWS, "x": x * 8, "y": y * 6}
                drawn["shares"] = np.stack(shares, -1)
                return {k: keras.ops.array(v) for k, v in drawn.items()}

        return Given(**options)(data, training=True)

    return call


_PICTURES = _floats(3, 6, 8, 2)
_BOXES = np.float32([[[0, 0, 3, 2], [2, 1, 8, 6]], [[1, 1, 7, 5], [4, 4, 5, 6]]] * 2)[
    :3
]
_KINDS = np.array([[1, 2], [3, -1], [5, 6]], "float32")
_SCENES = {
    "images": _PICTURES,
    "labels": np.eye(3, dtype="float32"),
    "segmentation_masks": (_PICTURES > 0).astype("int32"),
    "bounding_boxes": {"boxes": _BOXES, "labels": _KINDS},
}
_FIRST = _PICTURES.transpose(0, 3, 1, 2)


def _packed(kind, codes, axis=0, **options):
    """What is packed, with its shape and size, and what is read from it again."""

    def call(keras):
        pack = getattr(keras.quantizers, f"pack_{kind}")
        packed, shape, size = pack(codes, axis, **options)
        again = getattr(keras.quantizers, f"unpack_{kind}")(
            packed, size, axis, **options
        )
        return [packed, np.array(shape), np.array(size), again]

    return call


_WIDE = _floats(8, 40)


def _made(layer):
    """A layer with weights that are given, not drawn."""
    layer.build((None, _WIDE.shape[1]))
    shapes = [tuple(w.shape) for w in layer.weights]
    layer.set_weights([_floats(*shape, seed=i) for i, shape in enumerate(shapes)])
    return layer


def _dense(name, mode=None, x=_WIDE, **options):
    """What a layer computes, in few bits with a mode."""

    def call(keras):
        layer = _made(getattr(keras.layers, name)(7, **options))
        if mode is not None:
            layer.quantize(mode)
        return keras.ops.cast(layer(x), "float32")

    return call


def _trained(keras):
    """The weights after some steps, so that gradients are compared, too."""
    layers = keras.layers
    first, second = (
        layers.TernaryDense(7, activation="tanh"),
        layers.TernaryDense(3, 0.4),
    )
    model = keras.Sequential([keras.Input((40,)), first, second, layers.Dense(1)])
    shapes = [tuple(w.shape) for w in model.weights]
    model.set_weights([_floats(*shape, seed=i) for i, shape in enumerate(shapes)])
    model.compile(keras.optimizers.SGD(0.001), "mse")
    model.fit(_WIDE, _WIDE[:, :1], batch_size=4, epochs=3, shuffle=False, verbose=0)
    return model.get_weights()


def _awq(group_size, sample):
    """A kernel as AWQ reads it again; Keras' function is none of its public names.

    The kernel is lopsided: where both ends of a block are cut, the zero point is a
    half, which a last digit rounds up or down.
    """

    def call(keras):
        kernel, mean = _floats(40, 70, low=-0.3), np.abs(_WIDE).mean(0)
        if keras.__name__ == "keras":
            from keras.src.quantizers.awq import awq_quantize_matrix

            whole, scale, zero, factor, group = map(
                np.asarray,
                awq_quantize_matrix(
                    kernel.T,
                    mean,
                    group_size=group_size,
                    apply_clip=sample is not None,
                    activation_sample=sample,
                ),
            )
            read = (np.float32(whole) - zero[:, group]) * scale[:, group] / factor
            return read.T
        from exburn.compression.quantization.awq import round_by_awq
        from exburn.compression.quantization.scheme import Scheme

        scheme = Scheme("int4", (40, 70), (0,), group_size, False, method="awq")
        return scheme.decode(*round_by_awq(kernel, scheme, mean, sample))

    return call


_BYTES = np.random.default_rng(0).integers(-2, 2, (7, 6, 2)).astype("int8")

QUANTIZERS = {
    "awq": [
        *(_awq(size, _WIDE) for size in (-1, 8, 15)),  # 15 does not divide 40
        *(_awq(size, None) for size in (-1, 8, 15)),
    ],
    "pack": [
        *(_packed("int2", _BYTES, axis) for axis in (0, 1, -1)),
        _packed("int2", (_BYTES + 2).astype("uint8"), 1, dtype="uint8"),
        *(_packed("ternary", CODES, axis) for axis in (0, 1, -1)),
        _packed("ternary", X),
    ],
    "ternary": [
        _dense("TernaryDense"),
        _dense("TernaryDense", threshold=0.7, activation="relu", use_bias=False),
        _dense("TernaryDense", x=_WIDE.reshape(2, 2, 2, 40)),
        _dense("TernaryDense", dtype="mixed_bfloat16"),
        _dense("TernaryDense", "ternary"),
        _dense("TernaryDense", "ternary", threshold=0.7, activation="relu"),
        _dense("Dense", "ternary", activation="tanh"),
        _trained,
    ],
}

LAYERS = {
    "mosaic": [
        _mosaic(_SCENES, bounding_box_format="xyxy"),
        _mosaic(
            {
                "images": _PICTURES,
                "bounding_boxes": {"boxes": _BOXES / 8, "labels": _KINDS},
            },
            bounding_box_format="rel_xywh",
        ),
        _mosaic({"images": _FIRST}, data_format="channels_first"),
    ],
}

CASES = {**OPS, **LOSSES, **LAYERS, **QUANTIZERS}
