"""What programs have built in, and how a change of it is named."""

import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import layers, optimizers
from exburn.errors import RecompileWarning


@pytest.mark.parametrize(
    ("part", "change", "said"),
    [
        ("x", lambda x: x.astype("int16"), r"x float32\[8, 4\] → int16\[8, 4\]"),
        ("y", lambda y: y.astype("int8"), r"y float32\[8, 1\] → int8\[8, 1\]"),
    ],
)
def test_what_changed_is_named_once(part, change, said):
    data = {"x": np.ones((8, 4), "float32"), "y": np.ones((8, 1), "float32")}
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1)])
    model.compile("sgd", loss="mse")
    model.fit(**data, verbose=0)
    with pytest.warns(RecompileWarning, match=said) as caught:
        model.fit(**data | {part: change(data[part])}, verbose=0)
        model.fit(**data, batch_size=4, verbose=0)
    assert len(caught) == 1


def test_a_weight_of_another_dtype_is_named():
    inner = nnx.Linear(4, 1, rngs=nnx.Rngs(0))
    model = exburn.Sequential([exburn.Input((4,)), inner])
    model.compile("sgd", loss="mse")
    x, y = np.ones((8, 4)), np.ones((8, 1))
    model.fit(x, y, verbose=0)
    inner.kernel.set_value(inner.kernel.get_value().astype("bfloat16"))
    with pytest.warns(RecompileWarning, match=r"kernel'\] float32.* → bfloat16"):
        model.fit(x, y, verbose=0)


def first(step):
    return 0.1


def test_a_change_of_the_model_or_its_optimizer_is_named():
    inner = exburn.Sequential([exburn.Input((4,)), layers.Dense(4), layers.Dense(4)])
    model = exburn.Sequential(
        [exburn.Input((4,)), inner, layers.Dropout(0.5), layers.Dense(1)]
    )
    sgd, cosine = optimizers.SGD(0.1), optimizers.schedules.CosineSchedule(0.1)
    model.compile(sgd, loss="mse")
    x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    model.fit(x, y, verbose=0)
    reasons = ["first use"]

    def trained(*said, epochs=1):
        sgd.scale = 0.5  # compiles nothing, and is no reason
        model.fit(x, y, epochs=epochs, verbose=0)
        reasons.append("; ".join(said))

    model.freeze("seq*", "dropout")
    trained("frozen now: sequential, dropout")
    model.unfreeze("sequential/dense")
    model.layers[1].rate = 0.25
    trained(
        "frozen no more: sequential/dense",
        "dropout.rate 0.5 → 0.25",
        "arguments from now on: dropout.rate",
    )
    sgd.momentum, sgd.learning_rate = 0.5, cosine
    trained(
        "optimizer: momentum 0.0 → 0.5", f"optimizer: learning_rate float → {cosine}"
    )
    steps = "the schedule's (steps per epoch, epochs)"
    trained(f"optimizer: {steps} (1, 1) → (1, 2)", epochs=2)
    sgd.learning_rate = first
    trained(f"optimizer: learning_rate {cosine} → first")
    assert [entry.reason for entry in model.compile_report()] == reasons


def test_options_of_optimizers_within_another_are_named():
    inner = optimizers.MultiOptimizer(optimizers.OptimizerMap(optimizers.SGD(0.1, 0.9)))
    told = optimizers.LossScaleOptimizer(inner).settings()
    assert told["inner_optimizer.optimizers[0].momentum"] == 0.9
    assert told["dynamic_growth_steps"] == 2000
