"""What an editor knows of the public names: types, wrong calls, subclasses, hovers."""

import json
import subprocess
import sys
from pathlib import Path

import jedi
import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
START = """\
from typing import assert_type
import numpy as np
import exburn as keras
from exburn import callbacks, datasets, initializers, layers, losses, metrics, ops
from exburn import optimizers

x = np.ones((2, 3))
model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
history = model.fit(x, x)
layer = layers.Dense(3)
"""

# The type that an expression is revealed to have.
TYPES = {
    "layer": "Dense",
    "layer(x)": "Any",
    "layer.units": "int",
    "layer.weights": "list[Weight]",
    "layer.get_config()": "dict[str, Any]",
    "layer.add_weight((3,))": "Weight",
    "layers.Dense.from_config({})": "Dense",
    "layers.LSTM(3)": "LSTM",
    "layers.GRU(3, return_sequences=True)": "GRU",
    "layers.Conv1D(3, 3)": "Conv1D",
    "layers.Conv2D(3, (3, 3), padding='same')": "Conv2D",
    "layers.Conv2DTranspose(3, 3)": "Conv2DTranspose",
    "layers.DepthwiseConv2D(3)": "DepthwiseConv2D",
    "layers.MultiHeadAttention(2, 3)": "MultiHeadAttention",
    "layers.Embedding(3, 3)": "Embedding",
    "layers.EinsumDense('ab,bc->ac', 3)": "EinsumDense",
    "layers.Dropout(0.5)": "Dropout",
    "layers.BatchNormalization()": "BatchNormalization",
    "layers.LayerNormalization(axis=(1, 2))": "LayerNormalization",
    "layers.Activation('relu')": "Activation",
    "layers.MaxPool2D(2)": "MaxPooling2D",
    "layers.GlobalAveragePooling2D()": "GlobalAveragePooling2D",
    "layers.RandomFlip()": "RandomFlip",
    "layers.RandomRotation(0.1, bounding_box_format='xyxy')": "RandomRotation",
    "layers.Flatten(input_shape=(3, 2))": "Flatten",
    "layers.Reshape((3, 1))": "Reshape",
    "layers.Concatenate()": "Concatenate",
    "layers.Bidirectional(layers.LSTM(2))": "Bidirectional",
    "layers.TextVectorization()": "TextVectorization",
    "layers.Normalization()": "Normalization",
    "model": "Sequential",
    "model.layers": "list[Layer]",
    "model.get_layer('dense')": "Layer",
    "model.name": "str",
    "model.count_params()": "int",
    "model.optimizer": "Optimizer | Any",
    "model.history": "History | Any",
    "model.evaluate(x, x, return_dict=True)": "dict[str, Any]",
    "model.evaluate(x, x)": "Any",
    "model.train_on_batch(x, x, return_dict=True)": "dict[str, Any]",
    "model.predict(x)": "Any",
    "model.to_json()": "str",
    "history": "History",
    "history.history": "dict[str, list[Any]]",
    "history.epoch": "list[int]",
    "keras.Input((3,))": "Symbol",
    "keras.Model(keras.Input((3,)), keras.Input((3,)))": "Model",
    "keras.load_model('x')": "Model",
    "keras.models.load_model('x')": "Model",
    "keras.register(layers.Dense)": "type[Dense]",
    "keras.Variable(x)": "Weight",
    "keras.random.normal((3,))": "Array",
    "losses.MeanSquaredError()": "MeanSquaredError",
    "losses.MeanSquaredError()(x, x)": "Array",
    "metrics.AUC()": "AUC",
    "optimizers.Adam(0.1)": "Adam",
    "optimizers.schedules.CosineDecay(0.1, 3)": "CosineDecay",
    "callbacks.EarlyStopping()": "EarlyStopping",
    "initializers.HeNormal()": "HeNormal",
    "keras.regularizers.L2(0.1)": "L2",
    "datasets.digits.load_data()[0][0].ndim": "int",
    "datasets.mnist.load_data()[1][1].ndim": "int",
}

# Each of these is an error, and none of the lines above is.
WRONG = """\
model.fit(epoch=3)
model.fit(x, x, epochs="3")
model.compile(optimiser="adam")
model.predict(x, batchsize=3)
model.evaluate(x, x, return_dic=True)
model.sumary()
model.fitt(x)
history.histroy
layers.Dens(3)
layers.Dense()
layers.Dense("3")
layers.Dense(3, activaton="relu")
layers.Dense(3, naem="head")
layers.Dense(3, activation=3)
layers.Dense(3, kernel_initializer=3)
layers.Dense(3, trainable="no")
layers.Conv2D(3)
layers.Conv2D(3, "3")
layers.Conv2D(3, 3, stride=2)
layers.Dropout("half")
layers.LSTM(3, return_sequence=True)
layers.Embedding(3)
layers.BatchNormalization(momentm=0.9)
layers.RandomFlip(modes="horizontal")
losses.MeanSquaredError(reductoin="sum")
metrics.Accuracy(nme="a")
optimizers.Adam(lr_=3)
callbacks.EarlyStopping(patiense=3)
keras.Sequentail()
keras.Input(shap=(3,))
keras.load_model()
datasets.digits.load_data(split=1)
ops.one_hot(x)
"""

# What users write in classes of their own: no incompatible override.
SUBCLASSES = """\
@keras.saving.register_keras_serializable()
class Scale(layers.Layer):
    def __init__(self, by, **kwargs):
        super().__init__(**kwargs)
        self.by = by
    def build(self, input_shape):
        self.scale = self.add_weight((input_shape[-1],))
    def call(self, x):
        return x * self.scale
    def compute_output_shape(self, input_shape):
        return input_shape
    def compute_mask(self, inputs, mask=None):
        return mask
    def get_config(self):
        return {**super().get_config(), "by": self.by}
class Net(keras.Model):
    def build(self, shape): ...
    def call(self, x, training=False):
        return x
    def train_step(self, state, data):
        return super().train_step(state, data)
class Own(losses.Loss):
    def call(self, y_true, y_pred):
        return y_true
class Rows(metrics.Metric):
    def update_state(self, y_true, y_pred, sample_weight=None): ...
    def result(self):
        return 0
class Note(callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None): ...
class Ones(initializers.Initializer):
    def __call__(self, shape, dtype=None):
        return np.ones(shape, dtype)
class Mean(keras.regularizers.Regularizer):
    def __call__(self, x):
        return 0.0
assert_type(Scale(2), Scale)
"""


def test_what_pyright_says(tmp_path):
    wrong = WRONG.splitlines()
    reveals = [f"reveal_type({expression})" for expression in TYPES]
    lines = [*START.splitlines(), *reveals, *SUBCLASSES.splitlines(), *wrong]
    (tmp_path / "user.py").write_text("\n".join(lines) + "\n")
    settings = {
        "include": ["user.py"],
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "standard",
        "reportUnusedExpression": "none",
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--outputjson", "-p", str(tmp_path)]
    done = subprocess.run(
        [*command, "--pythonpath", sys.executable],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    notes = json.loads(done.stdout)["generalDiagnostics"]
    types, faults = {}, {}
    for note in notes:
        line = lines[note["range"]["start"]["line"]]
        if note["severity"] == "information":
            types[line] = note["message"].rpartition(" is ")[2].strip('"')
        else:
            faults[line] = note["message"]
    assert types == dict(zip(reveals, TYPES.values(), strict=True))
    assert set(faults) == set(wrong), {
        line: faults.get(line, "passes") for line in set(faults) ^ set(wrong)
    }


@pytest.mark.parametrize(
    ("call", "names"),
    [
        ("model.fit(", ["x", "y", "batch_size", "epochs"]),
        ("optimizers.Adam(", ["learning_rate"]),
        ("losses.MeanSquaredError(", ["reduction"]),
    ],
)
def test_what_a_language_server_shows(call, names):
    script = jedi.Script(START + call, project=jedi.Project(ROOT))
    (signature,) = script.get_signatures()
    assert [parameter.name for parameter in signature.params][: len(names)] == names
    assert signature.docstring(raw=True).strip()


@pytest.mark.parametrize("name", ["Dense", "LSTM", "Conv2D"])
def test_a_language_server_tells_of_a_layer(name):
    script = jedi.Script(f"{START}layers.{name}", project=jedi.Project(ROOT))
    (definition,) = script.infer()
    assert definition.type == "class" and definition.name == name
    assert "Args:" in definition.docstring(raw=True)
