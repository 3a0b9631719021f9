"""Makes the files beside this one: Keras 2's own, with what its models computed.

python -m venv /tmp/keras2 && /tmp/keras2/bin/pip install tensorflow-cpu==2.15.1
/tmp/keras2/bin/python tests/saving/keras2/make.py
"""

from pathlib import Path

import numpy as np
import tensorflow as tf  # pyright: ignore[reportMissingImports]

K = tf.keras
L = K.layers
FOLDER = Path(__file__).parent


def stack():
    """A stack with an optimizer's state."""
    penalty = K.regularizers.L2(0.01)
    layers = [
        L.Dense(4, activation="relu", input_shape=(6,)),
        L.BatchNormalization(),
        L.LeakyReLU(alpha=0.1),
        L.Dropout(0.0),
        L.ThresholdedReLU(theta=0.05),
        L.Dense(2, kernel_regularizer=penalty),
    ]
    model = K.Sequential(layers, name="stack")
    model.compile(K.optimizers.Adam(0.01), "mse", metrics=["mae"])
    x = np.random.default_rng(0).random((8, 6), np.float32)
    model.fit(x, x[:, :2], batch_size=4, epochs=2, verbose=0, shuffle=False)
    return model, [x]


def words():
    """Recurrent layers, one that is given its state."""
    tokens = L.Input((5,), dtype="int32")
    x = L.Embedding(9, 4, mask_zero=True, input_length=5)(tokens)
    x = L.Bidirectional(L.LSTM(2, return_sequences=True))(x)
    x, state = L.GRU(3, return_sequences=True, return_state=True)(x)
    x = L.GRU(3, reset_after=False)(x, initial_state=state)
    return K.Model(tokens, x, name="words"), [np.arange(20).reshape(4, 5) % 9]


def outputs():
    """Two inputs and outputs, a shared layer, attention, settings of compile."""
    a, b = L.Input((5, 4), name="a"), L.Input((5, 4), name="b")
    dense = L.Dense(4, activation="tanh")
    x, y = dense(a), dense(b)
    x = L.MultiHeadAttention(2, 3)(x, value=y)
    x = L.LayerNormalization(axis=[-1])(L.Add()([x, y]))
    x = L.Flatten()(L.RNN(L.SimpleRNNCell(2))(x))
    first = L.Dense(1, activation="sigmoid", name="first")(x)
    model = K.Model([a, b], [first, L.Dense(3, name="second")(x)], name="outputs")
    loss = K.losses.SparseCategoricalCrossentropy(from_logits=True)
    auc = K.metrics.AUC(num_thresholds=20, name="auc")
    model.compile(
        K.optimizers.legacy.SGD(0.1, decay=0.01),
        {"first": "binary_crossentropy", "second": loss},
        metrics={"first": [auc, "accuracy"], "second": ["accuracy"]},
        loss_weights={"first": 2.0, "second": 0.5},
    )
    rng = np.random.default_rng(0)
    inputs = [rng.random((4, 5, 4), np.float32) for _ in range(2)]
    model.fit(inputs, [np.ones((4, 1)), np.ones(4)], verbose=0)
    return model, inputs


def images():
    """Convolutions, models inside, frozen layers."""
    inner = K.Sequential(
        [L.Conv2D(3, 3, padding="same"), L.BatchNormalization(), L.ReLU(6.0)],
        name="inner",
    )
    start = L.Input((4, 4, 3))
    mixed = L.SeparableConv2D(3, 3, padding="same", activation="elu")(start)
    mixed = L.PReLU(shared_axes=[1, 2])(L.DepthwiseConv2D(3, padding="same")(mixed))
    block = K.Model(start, L.Add()([start, mixed]), name="block")
    image = L.Input((8, 8, 3))
    x = L.Rescaling(1 / 255.0)(image)
    x = L.RandomFlip("horizontal")(x)
    x = L.ZeroPadding2D(1)(inner(x))
    x = L.MaxPooling2D(2)(L.Cropping2D(1)(x))
    x = block(block(x))
    x = L.Conv2DTranspose(2, 2, strides=2)(x)
    x = L.GroupNormalization(1)(x)
    x = L.GlobalAveragePooling2D()(L.UpSampling2D()(x))
    model = K.Model(image, L.Dense(2, dtype="float32")(x), name="images")
    inner.trainable = False
    return model, [np.random.default_rng(0).random((2, 8, 8, 3), np.float32) * 255]


class Subclassed(K.Model):
    """Its weights only can be in such a file."""

    def __init__(self):
        super().__init__()
        self.first = L.Dense(3, activation="relu", name="first")
        self.norm = L.BatchNormalization(name="norm")
        self.last = L.Dense(2, name="last")

    def build(self, shape):
        self.scale = self.add_weight("scale", (2,), initializer="ones")
        super().build(shape)

    def call(self, x):
        return self.last(self.norm(self.first(x))) * self.scale


def main():
    K.utils.set_random_seed(0)
    answers = {}
    for make in (stack, words, outputs, images):
        model, inputs = make()
        for number, weight in enumerate(model.weights):
            if "iteration" not in weight.name:
                noise = np.random.default_rng(number).random(weight.shape)
                weight.assign(weight + 0.1 * noise.astype(np.float32))
        model.save(FOLDER / f"{make.__name__}.h5")
        if make is stack:
            model.save(FOLDER / "stack.keras")
        computed = model.predict(inputs, verbose=0)
        computed = computed if isinstance(computed, list) else [computed]
        for i, x in enumerate(inputs):
            answers[f"{make.__name__}/x{i}"] = x
        for i, y in enumerate(computed):
            answers[f"{make.__name__}/y{i}"] = y
    x = answers["stack/x0"]
    saved = K.models.load_model(FOLDER / "stack.h5")
    saved.fit(x, x[:, :2], batch_size=4, epochs=1, verbose=0, shuffle=False)
    answers["stack/trained"] = saved.layers[-1].get_weights()[0]
    net = Subclassed()
    net(x)
    net.scale.assign([2.0, 3.0])
    net.save_weights(FOLDER / "subclassed.h5")
    answers["subclassed/x0"], answers["subclassed/y0"] = x, net(x).numpy()
    np.savez_compressed(FOLDER / "answers.npz", **answers)


if __name__ == "__main__":
    main()
