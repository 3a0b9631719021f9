"""keras-sig 1.0: path signatures as a layer, and a step of training through it."""

import sys

import keras
import keras_sig
import numpy as np

rng = np.random.default_rng(0)
x = rng.normal(size=(6, 12, 3)).astype("float32")
found = {}
for depth, stream, parallel in ((3, False, False), (3, True, False), (4, False, True)):
    image = keras.Input((12, 3))
    layer = keras_sig.SigLayer(depth, stream=stream, gpu_optimized=parallel)
    model = keras.Model(image, layer(image))
    found[f"{depth} {stream} {parallel}"] = model.predict(x, verbose=0)
    found[f"shape {depth} {stream}"] = np.array(model.output_shape[1:])

path = keras.Input((12, 3))
hidden = keras.layers.GRU(4, return_sequences=True)(path)
features = keras_sig.SigLayer(3, gpu_optimized=False)(hidden)
model = keras.Model(path, keras.layers.Dense(1)(features))
model.set_weights(
    [0.3 * rng.normal(size=w.shape).astype("float32") for w in model.get_weights()]
)
model.compile(keras.optimizers.SGD(0.01), "mse")
y = rng.normal(size=(6, 1)).astype("float32")
history = model.fit(x, y, epochs=3, batch_size=6, shuffle=False, verbose=0)
found["losses"] = np.array(history.history["loss"])
np.savez(sys.argv[1], **found)
