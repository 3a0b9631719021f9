"""Arguments that Keras refuses are refused: nothing is ignored, or read otherwise."""

import inspect
import operator

import keras
import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError, ExBurnError, ShapeError

LIBRARIES = pytest.mark.parametrize("library", [exburn, keras], ids=["ours", "keras"])


def made(library, name, /, **arguments):
    return operator.attrgetter(name)(library)(**arguments)


@LIBRARIES
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("layers.Dense", {"units": 2, "trainable": "yes"}),
        ("layers.Dense", {"units": 2, "trainable": None}),
        ("layers.Dense", {"units": 2, "dtype": []}),
        ("layers.Dense", {"units": 2, "dtype": {}}),
        ("Sequential", {"trainable": 1}),
        ("layers.ZeroPadding1D", {"padding": (1,)}),
        ("layers.ZeroPadding1D", {"padding": ((1, 1),)}),
        ("layers.Cropping1D", {"cropping": [2]}),
        ("layers.UpSampling1D", {"size": (2,)}),
        ("layers.Reshape", {"target_shape": True}),
        ("layers.InputLayer", {"batch_size": 4, "batch_shape": (2, 3)}),
        ("Input", {"batch_size": 4, "batch_shape": (4, 3)}),
        ("Input", {"shape": True}),
        ("Input", {"shape": "ab"}),
        ("Input", {"shape": (3,), "dtype": []}),
        ("layers.InputSpec", {"dtype": "yes"}),
        ("layers.InputSpec", {"shape": (-1, 2)}),
        ("layers.Dropout", {"rate": 0.5, "seed": "3"}),
        ("layers.Dropout", {"rate": 0.5, "noise_shape": True}),
        ("layers.Dropout", {"rate": 0.5, "noise_shape": ""}),
        ("layers.LSTM", {"units": 2, "seed": 1.5}),
        ("layers.RandomFlip", {"seed": -1}),
        ("layers.LayerNormalization", {"axis": "3"}),
        ("layers.LayerNormalization", {"axis": 1.0}),
        ("layers.Embedding", {"input_dim": 5, "output_dim": 3, "weights": 2}),
        (
            "layers.Embedding",
            {"input_dim": 5, "output_dim": 3, "weights": np.ones((3, 5))},
        ),
        ("metrics.FBetaScore", {"beta": 1}),
        ("metrics.F1Score", {"threshold": 1}),
        ("metrics.Mean", {"name": 3}),
        ("metrics.AUC", {"thresholds": 0.5}),
        ("metrics.AUC", {"label_weights": ""}),
        ("metrics.IoU", {"num_classes": 1.5, "target_class_ids": [0]}),
        ("optimizers.SGD", {"name": (3,)}),
        ("optimizers.Adam", {"learning_rate": {}}),
        ("callbacks.BackupAndRestore", {"backup_dir": ""}),
        ("callbacks.BackupAndRestore", {"backup_dir": None}),
    ],
    ids=str,
)
def test_arguments(library, name, arguments):
    with pytest.raises((ValueError, TypeError, OverflowError, AttributeError)) as error:
        made(library, name, **arguments)
    assert library is keras or isinstance(error.value, ExBurnError)


ROWS, ONE_HOT = np.ones(4, "float32"), np.eye(4, dtype="float32")


@LIBRARIES
@pytest.mark.parametrize(
    ("name", "arguments", "targets", "predictions"),
    [
        ("R2Score", {}, ROWS, ROWS),
        ("OneHotIoU", {"num_classes": 4, "target_class_ids": [0]}, ROWS, ROWS),
        ("OneHotMeanIoU", {"num_classes": 4, "axis": 2}, ONE_HOT, ONE_HOT),
        ("PearsonCorrelation", {"axis": 2}, ONE_HOT, ONE_HOT),
        ("SparseCategoricalCrossentropy", {"axis": 0}, np.arange(3), ONE_HOT[:, :3]),
    ],
    ids=lambda v: str(v)[:40],
)
def test_shapes(library, name, arguments, targets, predictions):
    metric = made(library, f"metrics.{name}", **arguments)
    with pytest.raises((ValueError, TypeError, IndexError)) as error:
        metric.update_state(targets, predictions)
    assert library is keras or isinstance(error.value, ShapeError)


@LIBRARIES
@pytest.mark.parametrize(
    ("name", "arguments", "inputs"),
    [
        ("ELU", {"alpha": "3"}, [(2, 3)]),
        ("Concatenate", {"axis": 1.5}, [(2, 3), (2, 3)]),
        (
            "EinsumDense",
            {"equation": "ab,bc->ac", "output_shape": 3, "bias_axes": []},
            [(2, 3)],
        ),
    ],
    ids=str,
)
def test_calls(library, name, arguments, inputs):
    """Keras notices when the layer is called; here its constructor tells."""
    given = [np.ones(shape, "float32") for shape in inputs]
    with pytest.raises((ValueError, TypeError)) as error:
        layer = made(library, f"layers.{name}", **arguments)
        layer(given if len(given) > 1 else given[0])
    assert library is keras or isinstance(error.value, ArgumentError)


@pytest.mark.parametrize("name", ["RandomNormal", "TruncatedNormal"])
def test_text_is_no_number_of_an_initializer(name):
    with pytest.raises(ArgumentError, match="stddev must be a number, received '3'"):
        made(exburn, f"initializers.{name}", stddev="3")


def test_what_has_a_meaning_is_taken():
    """Beyond Keras: docs/from_keras/ tells."""
    assert exburn.optimizers.SGD(1, momentum=0).learning_rate == 1.0
    assert exburn.Input(3).shape == (None, 3)
    assert exburn.layers.Reshape(-1).target_shape == (-1,)
    assert exburn.metrics.Precision(thresholds=(0.2, 0.5)).thresholds == [0.2, 0.5]
    loss = exburn.losses.SparseCategoricalCrossentropy
    assert loss(ignore_class=-1.0).ignore_class == -1
    assert float(loss(axis=0)(np.arange(2), np.eye(2, dtype="float32"))) < 1e-5
    score = exburn.metrics.R2Score()
    score.update_state(ROWS, ROWS[:, None])
    with pytest.raises(ArgumentError, match="axis must be an int"):  # there when called
        exburn.losses.CategoricalFocalCrossentropy(axis=True)


# --- a sweep over the catalogue -------------------------------------------------------

VALUES = [True, "yes", -1, 1, 1.5, "3", (1,), (1, 2, 3), ((1, 2), (3, 4)), [], {}]

#: What the required arguments are given.
NEEDED = {
    "activation": "relu",
    "backup_dir": "backup",
    "boundaries": [1, 2],
    "decay_rate": 0.5,
    "decay_steps": 10,
    "dims": (2, 1),
    "equation": "ab,bc->ac",
    "factor": 0.2,
    "filename": "log.csv",
    "filepath": "model.keras",
    "first_decay_steps": 10,
    "height": 4,
    "initial_learning_rate": 0.1,
    "output_shape": 3,
    "rate": 0.3,
    "scale": 2.0,
    "schedule": lambda epoch: 0.1,
    "stddev": 0.3,
    "target_class_ids": [0],
    "target_shape": (3, 2),
    "value_range": (0, 255),
    "values": [1.0, 0.5, 0.1],
    "width": 4,
} | dict.fromkeys(("precision", "recall", "sensitivity", "specificity"), 0.5)
COUNTS = (
    "axes filters head_dim input_dim kernel_size key_dim max_value n num_bins "
    "num_classes num_heads num_key_value_heads num_query_heads output_dim output_size "
    "pool_size units"
)
NEEDED |= dict.fromkeys(COUNTS.split(), 2)

#: Arguments that Keras reads more narrowly: see docs/from_keras/. The names of
#: metrics and optimizers are text in any case.
WIDER = {
    "learning_rate": (1,),
    "momentum": (1,),
    "noise_shape": (1,),
    "sigma": (1.5,),
    "stddev": (1.5,),
    "target_shape": (-1, 1),
    "thresholds": ((1,),),
    "batch_input_shape": VALUES,
    "filepath": ("yes", "3"),
    "synchronized": VALUES,
    "shape": (1,),
}


def classes(area):
    ours = operator.attrgetter(area)(exburn)
    for name, theirs in vars(operator.attrgetter(area)(keras)).items():
        own = getattr(ours, name, None)
        if inspect.isclass(theirs) and inspect.isclass(own) and theirs.__name__ == name:
            yield theirs, own


def refused(kind, arguments):
    try:
        kind(**arguments)
    except Exception as error:
        return "requires TensorFlow" not in str(error)
    return False


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "area",
    "callbacks constraints initializers layers losses metrics optimizers".split(),
)
def test_whatever_keras_refuses_in_a_constructor_is_refused(
    area, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    taken = []
    for theirs, ours in classes(area):
        parameters = inspect.signature(theirs).parameters.values()
        named = [p for p in parameters if p.kind not in (2, 4)]
        needed = {p.name: NEEDED.get(p.name) for p in named if p.default is p.empty}
        if None in needed.values() or refused(theirs, needed):
            continue  # of other objects: a layer, a function
        names = {p.name for p in named}
        if area == "layers" and not refused(theirs, needed | {"trainable": True}):
            names |= {"trainable"}
        for name in names:
            for value in VALUES:
                given = needed | {name: value}
                known = value in WIDER.get(name, ())
                if known or not refused(theirs, given) or refused(ours, given):
                    continue
                taken.append(f"{area}.{ours.__name__}({name}={value!r})")
    assert not taken
