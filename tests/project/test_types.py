"""What an editor knows of the public names: types, wrong calls, subclasses, hovers.

Pyright and mypy read the wheel, installed beside what it depends on.
"""

import importlib
import inspect
import json
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import jedi
import pytest
from tests.checkout import ROOT

SPACES = (
    "activations applications callbacks compute constraints datasets distillation"
    " distribution initializers layers losses metrics models optimizers"
    " ops.linalg optimizers.schedules quantizers random regularizers saving serving"
    " text tree tuning wrappers"
)
START = """\
from typing import assert_type
import numpy as np
import exburn as keras
from exburn import callbacks, compute, datasets, initializers, layers, losses, metrics
from exburn import ops, optimizers

x = np.ones((2, 3))
model = keras.Sequential([keras.Input((3,)), layers.Dense(1)])
history = model.fit(x, x)
layer = layers.Dense(3)
loss, accuracy = model.evaluate(x, x)
assert float(model.evaluate(x, x)) < 3 and model.evaluate(x, x)[0] > loss
for name, output in model.predict(x).items():  # where a model has several
    print(name, output.shape, model.predict(x).argmax(-1), len(model.predict(x)[0]))
def rows(x: np.ndarray) -> np.ndarray:
    return x
"""

# The type that an expression is revealed to have.
TYPES = {
    "layer": "Dense",
    "layer(x)": "Any",
    "layer.units": "int",
    "layer.weights": "list[Weight]",
    "layer.get_config()": "dict[str, Any]",
    "layer.add_weight((3,))": "Weight",
    "layers.Dense.from_config({})": ("Dense", "Any"),
    "layer.clone()": "Dense",
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
    "model.evaluate(x, x)": "Scores",
    "model.evaluate(x, x, return_dict=bool(x.size))": "Any",
    "model.train_on_batch(x, x, return_dict=True)": "dict[str, Any]",
    "model.predict(x)": "Outputs",
    "model.clone()": "Sequential",
    "keras.models.clone_model(model)": "Sequential",
    "model.to_json()": "str",
    "history": "History",
    "history.history": "dict[str, list[Any]]",
    "history.epoch": "list[int]",
    "keras.Input((3,))": "Symbol",
    "keras.Model(keras.Input((3,)), keras.Input((3,)))": "Model",
    "keras.load_model('x')": "Model",
    "keras.models.load_model('x')": "Model",
    "keras.saving.load_model('x')": "Model",
    "keras.saving.register_keras_serializable()(layers.Dense)": "type[Dense]",
    "compute.register_kernel('rows')(rows)": "rows",
    "compute.register_kernel('rows', rows)": "rows",
    "keras.register(layers.Dense)": "type[Dense]",
    "keras.Variable(x)": "Weight",
    "keras.random.normal((3,))": "Array",
    "keras.random.shuffle(x, seed=3)": "Array",
    "keras.activations.relu(x)": "Array",
    "ops.relu(x)": "Array",
    "ops.sum(x, axis=(0, 1), keepdims=True)": "Array",
    "ops.matmul(x, x)": "Array",
    "ops.concatenate([x, x], axis=-1)": "Array",
    "ops.split(x, 3, axis=1)": "list[Array]",
    "ops.shape(x)": "tuple[Any, ...]",
    "ops.convert_to_numpy(x).ndim": "int",
    "ops.top_k(x, 2)[1]": "Array",
    "ops.linalg.svd(x)": "tuple[Array, Array, Array]",
    "ops.linalg.svd(x, compute_uv=False)": "Array",
    "ops.numpy.linspace(0, 1, retstep=True)": "tuple[Array, Array]",
    "ops.nn.softmax(x)": "Array",
    "ops.image.resize(x, (2, 3))": "Array",
    "ops.is_tensor(x)": "bool",
    "losses.mean_squared_error(x, x)": "Array",
    "metrics.binary_accuracy(x, x)": "Array",
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
layers.Layer(naem="x")
layers.Add(nam="x")
keras.Model(nmae="x")
callbacks.LambdaCallback(on_epoch_ends=print)
optimizers.Optimizer(0.1, momentm=3)
keras.saving.load_model("x", custom_object={})
compute.register_kernel(3)
ops.one_hot(x)
ops.relu(x, 3, 4)
ops.sum(x, axis="1")
ops.mean(x, keepdim=True)
ops.matmul(x)
ops.concatenate([x, x], axs=1)
ops.linalg.norm(x, order=2)
ops.image.resize(x, size=3)
keras.random.normal((3,), std=2.0)
keras.random.uniform("3")
keras.activations.relu(x, slope=0.1)
losses.mean_squared_error(x)
metrics.binary_accuracy(x, x, threshhold=0.3)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The Python of an environment that has the wheel, and what this one has."""
    folder = tmp_path_factory.mktemp("installed")
    copy = folder / "checkout"
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, run(*listed, cwd=ROOT).split("\0")):
        if (ROOT / name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            (copy / name).symlink_to(ROOT / name)
    run(sys.executable, "-m", "build", "--wheel", "--outdir", folder, copy, cwd=folder)
    venv.create(folder / "environment", with_pip=False)
    paths = {"base": folder / "environment", "platbase": folder / "environment"}
    site = Path(sysconfig.get_path("purelib", vars=paths))
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "peers.pth").write_text(sysconfig.get_path("purelib"))
    return Path(sysconfig.get_path("scripts", vars=paths)) / "python"


def run(*command: object, cwd: Path) -> str:
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr  # 1: there are errors in the file
    return done.stdout


def public_names() -> list[str]:
    """Paths of what the public namespaces list."""
    spaces = [f"exburn.{name}" for name in SPACES.split()]
    return [
        f"{space}.{name}"
        for space in spaces
        for name in importlib.import_module(space).__all__
        if not inspect.ismodule(getattr(importlib.import_module(space), name))
    ]


LINES = [
    *START.splitlines(),
    *(REVEALS := [f"reveal_type({expression})" for expression in TYPES]),
    *(WRONGS := WRONG.splitlines()),
]


def pyright_notes(folder: Path, python: Path):
    """What pyright says: file, line, whether it is an error, text."""
    settings = {"typeCheckingMode": "standard", "reportUnusedExpression": "none"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    command = (sys.executable, "-m", "pyright", "--outputjson", "-p", folder)
    told = run(*command, "--pythonpath", python, cwd=folder)
    for note in json.loads(told)["generalDiagnostics"]:
        line = note["range"]["start"]["line"]
        error = note["severity"] != "information"
        yield Path(note["file"]).name, line, error, note["message"]


def mypy_notes(folder: Path, python: Path):
    """What mypy says, likewise."""
    command = (sys.executable, "-m", "mypy", "--check-untyped-defs")
    told = run(*command, "--python-executable", python, ".", cwd=folder)
    for note in told.splitlines():
        if match := re.fullmatch(r"(\S+):(\d+): (error|note): (.*)", note):
            file, line, kind, text = match.groups()
            yield file, int(line) - 1, kind == "error", text


@pytest.mark.parametrize(
    ("column", "check"), [(0, pyright_notes), (1, mypy_notes)], ids=["pyright", "mypy"]
)
def test_what_a_type_checker_says(column, check, installed, tmp_path):
    (tmp_path / "calls.py").write_text("\n".join(LINES) + "\n")
    names = public_names()
    shown = [f"reveal_type({name})" for name in names] if column == 0 else []
    imports = [f"import exburn.{name}" for name in SPACES.split()]
    (tmp_path / "surface.py").write_text("\n".join([*imports, *shown]) + "\n")
    own = ROOT / "tests" / "project" / "user_classes.py"
    (tmp_path / own.name).write_text(own.read_text())
    types, faults, others, surface = {}, {}, [], 0
    for file, number, error, text in check(tmp_path, installed):
        if file == "surface.py" and not error:
            surface += 1
            if "Unknown" in text or re.search(r" is \"(\(\.\.\.\)|Any)", text):
                others.append((file, number + 1, "", text))
            continue
        line = LINES[number] if file == "calls.py" else ""
        if file != "calls.py" or (error and line not in WRONGS):
            others.append((file, number + 1, line, text))
        elif error:
            faults[line] = text
        elif found := re.search(r"(?: is |evealed type is )\"(.*)\"$", text):
            types[line] = _short(found[1])
    assert others == [] and surface == len(shown)
    wanted = [
        kind if isinstance(kind, str) else kind[column] for kind in TYPES.values()
    ]
    assert types == dict(zip(REVEALS, wanted, strict=True))
    assert set(faults) == set(WRONGS), {
        line: "passes" for line in WRONGS if line not in faults
    }


def _short(kind: str) -> str:
    """A type without modules; ``rows`` and ``Dense`` where mypy writes them out."""
    if re.match(r"(def )?\(x: ", kind):
        return "rows"
    if kind.startswith("def (units: "):
        return f"type[{kind.rpartition('.')[2]}]"
    return re.sub(r"\b(?:\w+\.)+(?=\w)", "", kind)


# Calls, and the first parameters that a popup shows.
POPUPS = {
    "layers.Dense(": "units activation use_bias",
    "layers.LSTM(": "units activation recurrent_activation",
    "layers.Conv2D(": "filters kernel_size strides",
    "layer.build(": "input_shape",
    "keras.Sequential(": "layers",
    "keras.saving.load_model(": "filepath custom_objects compile",
    "model.fit(": "x y batch_size epochs",
    "optimizers.Adam(": "learning_rate beta_1",
    "losses.MeanSquaredError(": "reduction name",
    "callbacks.EarlyStopping(": "monitor min_delta",
    "ops.mean(": "x axis keepdims",
    "ops.nn.relu(": "x",
    "ops.scan(": "f init xs",
    "keras.random.normal(": "shape mean stddev",
    "keras.activations.relu(": "x negative_slope",
}
WITHOUT_TEXT = {"layer.build("}


@pytest.mark.parametrize("call", POPUPS)
def test_what_a_language_server_shows(call):
    script = jedi.Script(START + call, project=jedi.Project(ROOT))
    (signature,) = script.get_signatures()
    names = [parameter.name for parameter in signature.params]
    names = names[names[0] == "self" :]
    assert names[: len(POPUPS[call].split())] == POPUPS[call].split()
    assert signature.docstring(raw=True).strip() or call in WITHOUT_TEXT


@pytest.mark.parametrize("name", ["Dense", "LSTM", "Conv2D"])
def test_a_language_server_tells_of_a_layer(name):
    script = jedi.Script(f"{START}layers.{name}", project=jedi.Project(ROOT))
    (definition,) = script.infer()
    assert definition.type == "class" and definition.name == name
    assert "Args:" in definition.docstring(raw=True)
