"""Copies that have a model's weights go on with its optimizer's state."""

import copy
import functools

import jax
import numpy as np
import optax
import pytest

import exburn
from exburn import compression, layers, optimizers
from exburn.module.traversal import iter_weights

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((60, 8)).astype(np.float32)
Y = X[:, :3].argmax(1)


def by_layer():
    slow = optimizers.SGD(0.01, momentum=0.9)
    return optimizers.MultiOptimizer(
        optimizers.OptimizerMap(slow, {"head/kernel": optimizers.Adam(0.01)})
    )


OPTIMIZERS = {
    "adam": functools.partial(optimizers.Adam, 0.01),
    "amsgrad": functools.partial(optimizers.Adam, 0.01, amsgrad=True),
    "nadam": functools.partial(optimizers.Nadam, 0.01),
    "sgd": functools.partial(optimizers.SGD, 0.01, momentum=0.9, nesterov=True),
    "lion": functools.partial(optimizers.Lion, 0.003),
    "adafactor": functools.partial(optimizers.Adafactor, 0.01),
    "muon": functools.partial(optimizers.Muon, 0.01),
    "average": functools.partial(optimizers.Adam, 0.01, use_ema=True),
    "accumulation": functools.partial(
        optimizers.Adam, 0.01, gradient_accumulation_steps=4
    ),
    "loss scale": lambda: optimizers.LossScaleOptimizer(optimizers.Adam(0.01)),
    "optax": lambda: optimizers.OptaxOptimizer(optax.adam, 0.01),
    "finished optax": lambda: optax.adam(0.01),
    "injected optax": lambda: optax.inject_hyperparams(optax.adam)(0.01),
    "several": by_layer,
    "several, scaled": lambda: optimizers.LossScaleOptimizer(by_layer()),
    "schedule": lambda: optimizers.Adam(optimizers.schedules.CosineDecay(0.01, 6)),
}


def make(optimizer="adam", **options):
    model = exburn.Sequential(
        [
            exburn.Input((8,)),
            layers.Dense(8, "relu", name="hidden"),
            layers.Dense(3, name="head"),
        ]
    )
    model.compile(OPTIMIZERS[optimizer](), "cross_entropy", seed=0, **options)
    return model


@functools.cache
def trained(optimizer="adam"):
    model = make(optimizer)
    model.fit(X, Y, batch_size=10, epochs=1, verbose=0)
    return model


def slots(model):
    """Arrays of the optimizer's state by path, but for the beginning of schedules."""
    leaves = jax.tree_util.tree_leaves_with_path(model._training_state()["opt_state"])
    named = {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}
    return {name: leaf for name, leaf in named.items() if "schedule" not in name}


def learnt(model):
    return {path: weight.numpy() for path, weight, on in iter_weights(model) if on}


def equal(one, two):
    assert one.keys() == two.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, two[name], err_msg=name)


COPIES = {
    "quantize_aware": lambda m: exburn.quantize_aware(m, "int8"),
    "weights alone": lambda m: exburn.quantize_aware(m, "int8", activations=False),
    "prune": lambda m: exburn.prune(m, 0.3),
    "strip": lambda m: compression.strip(exburn.prune(m, 0.3)),
    "both": lambda m: exburn.quantize_aware(exburn.prune(m, 0.3), "int8"),
    "deepcopy": copy.deepcopy,
}


@pytest.mark.parametrize("way", COPIES)
def test_slots_follow_the_weights(way):
    made = COPIES[way](trained())
    equal(slots(trained()), slots(made))
    assert made.optimizer.iterations == 6


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_slots_of_every_optimizer_follow(optimizer):
    model = trained(optimizer)
    equal(slots(model), slots(exburn.quantize_aware(model, "int8")))


@pytest.mark.parametrize("optimizer", [n for n in OPTIMIZERS if n != "schedule"])
def test_a_copy_trains_as_the_model_does(optimizer):
    """Masks that take nothing away change nothing, to the last bit."""
    model = copy.deepcopy(trained(optimizer))
    made = exburn.prune(model, 0.0)
    for one in (model, made):
        one.fit(X, Y, batch_size=10, epochs=2, verbose=0)
    equal(learnt(model), learnt(made))


def test_what_a_copy_trains_leaves_the_model_as_it_is():
    model, before = trained(), slots(trained())
    made = exburn.quantize_aware(model, "int8")
    made.fit(X, Y, epochs=1, verbose=0)
    equal(before, slots(model))
    assert made.optimizer is not model.optimizer


def test_slots_come_back_with_the_exact_weights():
    aware = exburn.quantize_aware(trained(), "int8")
    aware.fit(X, Y, batch_size=10, epochs=1, verbose=0)
    again = exburn.prune(aware, 0.0)
    equal(slots(aware), slots(again))
    stored = slots(aware.quantize())  # its biases train on
    assert stored and {*stored} < {*slots(aware)}
    for name, array in stored.items():
        np.testing.assert_array_equal(array, slots(aware)[name])


def test_slots_are_cut_as_their_weights_are():
    model = trained()
    narrow = exburn.prune(model, 0.5, pattern="channels", scope="layer")
    kept = [
        int(
            np.flatnonzero((model.layers[0].kernel.numpy() == column[:, None]).all(0))[
                0
            ]
        )
        for column in narrow.layers[0].kernel.numpy().T
    ]
    cut, of_kernel = slots(narrow), "['inner']['hidden/kernel']"
    for name, slot in slots(model).items():
        if name.startswith(of_kernel):
            np.testing.assert_array_equal(slot[:, kept], cut[name])


def test_a_schedule_begins_anew():
    model = trained("schedule")
    assert float(model.optimizer.learning_rate) == 0
    for made in (exburn.quantize_aware(model, "int8"), exburn.prune(model, 0.3)):
        assert float(made.optimizer.learning_rate) == pytest.approx(0.01)
        made.fit(X, Y, batch_size=10, epochs=1, verbose=0)
        assert float(made.optimizer.learning_rate) == 0
        again = exburn.prune(made, 0.4)
        assert float(again.optimizer.learning_rate) == pytest.approx(0.01)


def test_a_schedule_that_comes_later_counts_from_the_copy(tmp_path):
    aware = exburn.quantize_aware(trained(), "int8")
    rates = []

    def note(epoch, logs):
        rates.append(float(aware.optimizer.learning_rate))

    aware.fit(
        X,
        Y,
        batch_size=10,
        epochs=2,
        lr_schedule=optimizers.schedules.PiecewiseConstantDecay([8], [0.5, 0.25]),
        callbacks=[exburn.callbacks.LambdaCallback(on_epoch_end=note)],
        verbose=0,
    )
    assert rates == [0.5, 0.25]
    aware.save(tmp_path / "m.exburn")
    aware.optimizer.learning_rate = optimizers.schedules.CosineDecay(0.1, 24)
    read = exburn.load_model(tmp_path / "m.exburn")
    read.optimizer.learning_rate = optimizers.schedules.CosineDecay(0.1, 24)
    for one in (aware, read, copy.deepcopy(aware)):
        assert float(one.optimizer.learning_rate) == pytest.approx(0.05)


def test_a_model_that_was_not_trained_begins():
    made = exburn.quantize_aware(make(), "int8")
    assert made._training_state()["opt_state"] is None


def test_a_copy_that_is_compiled_anew_begins():
    made = exburn.quantize_aware(trained(), "int8")
    made.compile("adam", "cross_entropy")
    assert made._training_state()["opt_state"] is None


def test_patterns_of_an_optimizer_find_rounded_weights():
    made = exburn.quantize_aware(trained("several"), "int8")
    made.fit(X, Y, batch_size=10, epochs=1, verbose=0)
    inner = made._training_state()["opt_state"]["inner"]
    assert {*inner["0"]["inner"]} == {"head/kernel"}  # that of Adam
