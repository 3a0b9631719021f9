"""Mistakes of a first day, as programs: what goes wrong, and what mends it.

Each is a script, and the cell of a notebook. ``cause`` and ``cure`` are words of the
message; the cure, if there is one, stands in its last line.
"""

from __future__ import annotations

import dataclasses

#: What every program begins with.
PREAMBLE = """\
import numpy as np
import exburn as keras
from exburn import layers

rng = np.random.default_rng(0)
x = rng.normal(size=(32, 8)).astype("float32")
y = np.arange(32) % 3
images = rng.uniform(size=(32, 12, 12, 1)).astype("float32")


def classifier(loss="sparse_categorical_crossentropy", metrics=("accuracy",)):
    model = keras.Sequential(
        [keras.Input((8,)), layers.Dense(3, activation="softmax")]
    )
    model.compile(optimizer="adam", loss=loss, metrics=list(metrics))
    return model


"""


@dataclasses.dataclass(frozen=True)
class Mistake:
    """A program, and what its error must say."""

    program: str
    cause: str
    cure: str
    #: Functions of the program whose lines the traceback has, below the call.
    frames: int = 0


def _read(text: str) -> dict[str, Mistake]:
    mistakes = {}
    for part in text.strip().split("\n### ")[0:]:
        head, _, program = part.removeprefix("### ").partition("\n")
        name, cause, cure, *frames = [word.strip() for word in head.split(" | ")]
        count = int(frames[0]) if frames else 0
        mistakes[name] = Mistake(program.strip() + "\n", cause, cure, count)
    return mistakes


MISTAKES = _read("""
### columns that are missing | float32[32, 7] | must have the shape (8,)
model = classifier()
model.fit(x[:, :7], y)
### fewer labels than rows | same number of rows | first axis counts the samples
model = classifier()
model.fit(x, y[:20])
### labels that begin at 1 | whole numbers from 0 to 2 | counted from 0
model = classifier()
model.fit(x, y + 1)
### no compile | compile | model.compile(
model = keras.Sequential([keras.Input((8,)), layers.Dense(3)])
model.fit(x, y)
### one-hot for a sparse loss | float32[32, 3] | categorical_crossentropy
model = classifier()
model.fit(x, keras.utils.to_categorical(y))
### class labels for a loss of one-hot | int32[32] | sparse_categorical_crossentropy
model = classifier("categorical_crossentropy")
model.fit(x, y)
### names for labels | 'cat' at row 0 | return_inverse=True
names = np.array(["cat", "dog", "cow"])[y]
model = classifier()
model.fit(x, names)
### a missing value | nan at row 3, position (3, 1) | Drop or fill these rows
x[3, 1] = np.nan
model = classifier()
model.fit(x, y)
### text in a table | '3.5' at row 0, column 0 | astype(float)
table = np.array([["3.5", "red"], ["1.0", "blue"]] * 16, dtype=object)
model = keras.Sequential([layers.Dense(3)])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(table, y)
### an activation that is misspelt | 'rellu' | Did you mean 'relu'
model = keras.Sequential([layers.Dense(3, activation="rellu")])
### an optimizer that is misspelt | 'adm' | Did you mean 'adam'
model = keras.Sequential([layers.Dense(3)])
model.compile("adm", "mse")
### a loss that is misspelt | unknown loss | Did you mean 'mse' | 1
model = classifier("msee")
### a metric that is misspelt | 'acuracy' | Did you mean 'accuracy' | 1
model = classifier(metrics=["acuracy"])
model.fit(x, y)
### an argument of a layer | 'activaton' | Did you mean 'activation'
model = keras.Sequential([layers.Dense(3, activaton="relu")])
### an argument of fit | 'epoch' | Did you mean 'epochs'
model = classifier()
model.fit(x, y, epoch=3)
### an argument of compile | 'optimiser' | Did you mean 'optimizer'
model = keras.Sequential([layers.Dense(3)])
model.compile(optimiser="adam", loss="mse")
### an argument of a callback | 'monitr' | Did you mean 'monitor'
stop = keras.callbacks.EarlyStopping(monitr="loss")
### an old argument of an optimizer | 'lr' | learning_rate
optimizer = keras.optimizers.Adam(lr=0.01)
### layers without a list | one list | Pass a list
model = keras.Sequential(layers.Dense(16), layers.Dense(3))
### a layer that is misspelt | 'Dens' | Did you mean 'Dense'
layer = layers.Dens(3)
### a name in another module | no attribute 'Dense' | exburn.layers.Dense
layer = keras.Dense(3)
### a monitor that is misspelt | 'val_los' | Did you mean 'val_loss'
model = classifier()
stop = keras.callbacks.EarlyStopping(monitor="val_los")
model.fit(x, y, validation_split=0.25, callbacks=[stop])
### a monitor without validation data | 'val_loss' | validation_data
model = classifier()
stop = keras.callbacks.EarlyStopping(monitor="val_loss")
model.fit(x, y, callbacks=[stop])
### a class for a callback | EarlyStopping | EarlyStopping()
model = classifier()
model.fit(x, y, callbacks=[keras.callbacks.EarlyStopping])
### a file that is not there | there is no file | Did you mean 'digits.keras'
classifier().save("digits.keras")
model = keras.models.load_model("digit.keras")
### a folder that is not there | no/such | folder
model = classifier()
model.save("no/such/model.keras")
### a file that is no model | model.keras | -
with open("model.keras", "w") as file:
    file.write("hello")
model = keras.models.load_model("model.keras")
### weights of another model | shape | -
classifier().save_weights("small.weights.h5")
other = keras.Sequential([keras.Input((8,)), layers.Dense(5)])
other.load_weights("small.weights.h5")
### a generator of four parts | (x, y, sample_weight) | ((x1, x2), y)
def batches():
    while True:
        yield x, x, y, y
model = classifier()
model.fit(batches(), steps_per_epoch=3)
### a generator of single rows | single row | Batch the rows
def rows():
    for row, label in zip(x, y):
        yield row, label
model = classifier()
model.fit(rows())
### a generator that fails | while reading batch 1 of epoch 0 | my images/1.png | 1
def batches():
    yield x, y
    open("my images/1.png")
model = classifier()
model.fit(batches(), steps_per_epoch=3)
### no return in call | received NoneType | return
class Scale(layers.Layer):
    def call(self, inputs):
        inputs * 2.0

model = keras.Sequential([keras.Input((8,)), Scale(), layers.Dense(3)])
### an attribute that is misspelt | in layer 'block' (Block) | 'dnse' | 1
class Block(layers.Layer):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)

    def call(self, inputs):
        return self.dnse(inputs)

model = keras.Sequential([keras.Input((8,)), Block()])
### shapes that do not fit in call | in layer 'block' (Block) | got (8,) and (5,) | 1
class Block(layers.Layer):
    def build(self, input_shape):
        self.kernel = self.add_weight((5, 3))

    def call(self, inputs):
        return inputs @ self.kernel

model = keras.Sequential([keras.Input((8,)), Block()])
### NumPy in call | in layer 'root' (Root) | exburn.ops | 1
class Root(layers.Layer):
    def call(self, inputs):
        return np.sqrt(np.asarray(inputs))

model = keras.Sequential([keras.Input((8,)), Root()])
### an if on values in call | in layer 'positive' (Positive) | ops.where | 1
class Positive(layers.Layer):
    def call(self, inputs):
        if inputs.sum() > 0:
            return inputs
        return -inputs

model = keras.Sequential([keras.Input((8,)), Positive()])
### a key that is not there | received image: float32 | 'picture' | 1
class Reader(layers.Layer):
    def call(self, inputs):
        return inputs["picture"]

Reader()({"image": images})
### units that are no number | units must be an integer | received '3'
layer = layers.Dense("3")
### units that are no whole number | units must be an integer | received 3.5
layer = layers.Dense(3.5)
### a batch axis in Input | must be float32[None, 32, 8] | first axis is the batch
model = keras.Sequential([keras.Input((32, 8)), layers.Dense(3)])
model.compile("adam", "mse")
model.fit(x, y)
### images without colours | rank 4 | [..., None]
model = keras.Sequential([keras.Input((12, 12)), layers.Conv2D(4, 3)])
### flat rows for a recurrent layer | rank 3 | x[..., None]
model = keras.Sequential([keras.Input((8,)), layers.LSTM(4)])
### too much pooling | in layer 'conv2d_1' (Conv2D) | padding="same"
model = keras.Sequential(
    [
        keras.Input((12, 12, 1)),
        *(layers.MaxPooling2D(), layers.Conv2D(4, 3)),
        *(layers.MaxPooling2D(), layers.Conv2D(4, 3)),
    ]
)
### a layer twice in a stack | in the stack already | Make a second layer
hidden = layers.Dense(8)
model = keras.Sequential([keras.Input((8,)), hidden, hidden])
### no Flatten | class label | put a Flatten
stack = [layers.Conv2D(4, 3), layers.Dense(3, activation="softmax")]
model = keras.Sequential([keras.Input((12, 12, 1)), *stack])
model.compile("adam", "sparse_categorical_crossentropy")
model.fit(images, y)
### a reshape of another size | 8 | -
model = keras.Sequential([keras.Input((8,)), layers.Reshape((3, 3))])
### sizes that do not join | axis | -
a, b = keras.Input((8, 2)), keras.Input((7, 3))
both = layers.Concatenate()([a, b])
### sizes that do not add | broadcast | -
a, b = keras.Input((8,)), keras.Input((7,))
total = layers.Add()([a, b])
### an input that leads nowhere | disconnected | Add it to inputs=
a, b = keras.Input((8,)), keras.Input((8,))
model = keras.Model(a, layers.Dense(3)(b))
### a layer that was not called | outputs must be symbols | call layers on it
inputs = keras.Input((8,))
model = keras.Model(inputs, layers.Dense(3))
### one of two inputs | 2 inputs are needed | Pass one array for each input
a, b = keras.Input((8,), name="a"), keras.Input((8,), name="b")
model = keras.Model([a, b], layers.Dense(3)(layers.Add()([a, b])))
model.compile("adam", "mse")
model.fit(x, y)
### validation data without labels | validation_data | (x, y)
model = classifier()
model.fit(x, y, validation_data=x)
### a share that is none | received 1.5 | 0.2 takes
model = classifier()
model.fit(x, y, validation_split=1.5)
### a class without a weight | class 2 | class_weight
model = classifier()
model.fit(x, y, class_weight={0: 1.0, 1: 2.0})
### a negative rate | learning_rate | -0.1
optimizer = keras.optimizers.SGD(-0.1)
### a rate in quotes | learning_rate | '0.1'
optimizer = keras.optimizers.SGD("0.1")
### a regressor of another width | float32[32, 2] | as many units
model = keras.Sequential([keras.Input((8,)), layers.Dense(3)])
model.compile("adam", "mse")
model.fit(x, x[:, :2])
### ids beyond the table | 10 | input_dim
model = keras.Sequential([keras.Input((4,), dtype="int32"), layers.Embedding(10, 3)])
model.predict(np.full((5, 4), 12))
### no labels | y | -
model = classifier()
model.fit(x)
### an empty array | the data is empty | selected the rows
model = classifier()
model.fit(x[:0], y[:0])
### one row without a batch | float32[8] | x[None]
model = classifier()
model.predict(x[0])
### a batch size of zero | batch_size | received 0
model = classifier()
model.fit(x, y, batch_size=0)
### weights of fewer rows | sample_weight | -
model = classifier()
model.fit(x, y, sample_weight=np.ones(5))
### a dropout beyond 1 | rate | -
layer = layers.Dropout(1.5)
### an initializer that is misspelt | 'he_norml' | Did you mean 'he_normal'
layer = layers.Dense(3, kernel_initializer="he_norml")
### a layer of the model that is misspelt | 'dens' | Did you mean 'dense'
model = classifier()
model.get_layer("dens")
### a loss without return | received None | return
def loss(y_true, y_pred):
    keras.ops.mean((y_true - y_pred) ** 2)
model = classifier(loss, metrics=[])
model.fit(x, x[:, :3])
### a loss of shapes that do not fit | in loss 'loss' | (32, 3) | 1
def loss(y_true, y_pred):
    return keras.ops.mean((y_pred - keras.ops.ones((4, 5))) ** 2)
model = classifier(loss, metrics=[])
model.fit(x, y)
### a callback that fails | in callback 'Print' | has no key | 1
class Print(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        if "val_loss" not in logs:
            raise RuntimeError("logs has no key 'val_loss'")
model = classifier()
model.fit(x, y, callbacks=[Print()], verbose=0)
### an operation on shapes that do not fit | (8,) and (32,) | -
total = keras.ops.matmul(x, x)
### too few classes | labels must lie in 0 … 1 | num_classes
labels = keras.utils.to_categorical(y, num_classes=2)
### a format that is none | 'onx' | Did you mean 'onnx'
model = classifier()
model.export("model", format="onx")
### a path of a sweep that is misspelt | unknown path | Did you mean 'learning_rate'
model = classifier()
keras.sweep(model, x, y, over={"optimizer.learning_rat": [0.1, 0.2]})
### layers of Keras | of the package keras | exburn.layers.Dense
from keras import layers as other_layers
model = keras.Sequential([keras.Input((8,)), other_layers.Dense(3)])
### a text for the model | must be numeric | →
model = classifier()
model.predict(np.array(["one", "two"]))
### a training that is not there | 'fitt' | fit
model = classifier()
model.fitt(x, y)
### an argument that is missing | 'units' | Call it as Dense(units
layer = layers.Dense(activation="relu")
### an argument of a class of one's own | 'unit' | Did you mean 'units'
class Block(layers.Layer):
    def __init__(self, units):
        super().__init__()
        self.dense = layers.Dense(units)
layer = Block(unit=3)
### two metrics of one name | accuracy | -
again = keras.metrics.MeanSquaredError(name="accuracy")
model = classifier(metrics=["accuracy", again])
model.fit(x, y)
### a data set that is misspelt | 'mnits' | Did you mean 'mnist'
data = keras.datasets.mnits.load_data()
""")
