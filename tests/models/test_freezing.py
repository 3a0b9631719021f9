"""Frozen layers: outside of the gradient, the optimizer and every moving average."""

import copy
import re

import jax
import numpy as np
import pytest

import exburn
from exburn import callbacks, layers, optimizers
from exburn.errors import UnknownNameError
from exburn.models.preparing import output_names
from exburn.module.traversal import iter_weights
from exburn.training.module import SplitModule

RNG = np.random.default_rng(0)
X = RNG.standard_normal((96, 6)).astype(np.float32)
Y = RNG.integers(0, 3, 96)


def block(name):
    stack = [layers.Dense(5, "relu"), layers.BatchNormalization(), layers.Dense(4)]
    return exburn.Sequential(stack, name=name)


def network(optimizer=None, **settings):
    model = exburn.Sequential(
        [exburn.Input((6,)), block("block_0"), block("block_1"), layers.Dense(3)]
    )
    if optimizer is not None:
        model.compile(optimizer, "cross_entropy", seed=0, **settings)
    return model


def values(model):
    return {p: np.array(w.get_value()) for p, w, _ in iter_weights(model)}


def opt_state(model):
    return jax.tree.map(np.array, model._training_session.holder.opt_state)


def slot_paths(model):
    """The parameters that the optimizer keeps anything for."""
    state = opt_state(model)
    names = [str(path) for path, _ in jax.tree_util.tree_leaves_with_path(state)]
    known = {p for p, _, _ in iter_weights(model)}
    return {p for p in known if any(f"'{p}'" in name for name in names)}


OPTIMIZERS = {
    "adamw, averaged": lambda: optimizers.AdamW(
        0.01, weight_decay=0.1, use_ema=True, ema_overwrite_frequency=2
    ),
    "momentum, L2": lambda: optimizers.SGD(
        0.1, momentum=0.9, l2_weight_decay=0.1, use_ema=True
    ),
    "accumulation": lambda: optimizers.Adam(0.01, gradient_accumulation_steps=2),
    "by path": lambda: optimizers.MultiOptimizer(
        optimizers.OptimizerMap(
            optimizers.Adam(0.01), {"dense/.*": optimizers.SGD(1.0, 0.9)}
        )
    ),
}


@pytest.mark.parametrize(
    ("kind", "compiled_first"),
    [
        ("adamw, averaged", True),
        ("momentum, L2", False),
        ("accumulation", True),
        ("by path", False),
    ],
)
def test_frozen_parameters_stay_bit_identical(kind, compiled_first):
    model = network(OPTIMIZERS[kind]() if compiled_first else None)
    assert model.freeze("block_0") == ["block_0"]
    if not compiled_first:
        model.compile(OPTIMIZERS[kind](), "cross_entropy", seed=0)
    before = values(model)
    model.fit(X, Y, epochs=3, verbose=0)
    after = values(model)
    for path, value in before.items():
        changed = (after[path] != value).any()
        assert changed == (not path.startswith("block_0/")), path
    learned = {p for p, _, learns in iter_weights(model) if learns}
    assert slot_paths(model) == learned
    assert not any(path.startswith("block_0/") for path in learned)


@pytest.mark.parametrize("kind", ["adamw, averaged", "by path"])
def test_slots_of_the_others_stay_and_unfrozen_ones_begin_afresh(kind):
    model = network(OPTIMIZERS[kind]())
    model.fit(X, Y, epochs=2, verbose=0)
    trainer = model._training_session.trainer

    def slots():
        leaves = jax.tree_util.tree_leaves_with_path(trainer.holder.opt_state)
        return {jax.tree_util.keystr(p): np.array(v) for p, v in leaves}

    def names(outputs):
        return output_names(model, outputs)

    def prepare():
        batch = (X[:32], Y[:32].astype(np.int32), None)
        trainer.preparer.prepare(batch, names=names, kind="train")

    first = slots()
    model.freeze("block_1")
    prepare()
    frozen = slots()
    assert set(frozen) < set(first)
    assert all("block_1" in name for name in set(first) - set(frozen))
    for name, value in frozen.items():
        np.testing.assert_array_equal(value, first[name])
    weights = values(model)
    model.unfreeze("block_1")
    prepare()
    again = slots()
    ages = {name for name in again if "newcomers" in name}
    assert set(again) - ages == set(first)
    for name, value in again.items():
        if name in ages:  # they joined after six batches
            assert "block_1" in name or value == 6
        elif "block_1" not in name:
            np.testing.assert_array_equal(value, first[name])
        elif "average" in name:
            path = re.search(r"'(block_1/[^']*)'", name)[1]
            np.testing.assert_array_equal(value, weights[path])
        else:
            np.testing.assert_array_equal(value, 0)
    model.fit(X, Y, verbose=0)
    assert (
        values(model)["block_1/dense/kernel"] != weights["block_1/dense/kernel"]
    ).any()


@pytest.mark.parametrize(
    "freeze",
    [
        lambda model: model.freeze("block_0"),
        lambda model: model.freeze("batch_normalization"),
        lambda model: setattr(model.layers[0], "trainable", False),
        lambda model: setattr(model, "trainable", False),
    ],
)
def test_frozen_batch_normalization_runs_in_inference_mode(freeze):
    model = network()
    model.layers[0].layers[1].moving_mean.assign(np.full(5, 0.5))
    freeze(model)
    inner = model.layers[0].layers[1]
    split = SplitModule(model)
    _, others, _ = split.forward(split.read(), X, training=True, key=jax.random.key(0))
    path = "block_0/batch_normalization/moving_mean"
    np.testing.assert_array_equal(others[path], np.full(5, 0.5))
    expected = model.layers[0](X, training=False)
    np.testing.assert_allclose(model.layers[0](X, training=True), expected, atol=1e-6)
    assert not inner.trainable


def test_normalization_in_a_model_made_frozen_uses_its_moving_statistics():
    inner = exburn.Sequential([layers.BatchNormalization()], trainable=False)
    model = exburn.Sequential([exburn.Input((6,)), inner, layers.Dense(3)])
    model.compile("sgd", "cross_entropy")
    model.fit(X, Y, verbose=0)
    np.testing.assert_array_equal(inner.layers[0].moving_mean, np.zeros(6))


def test_everything_at_once():
    model = network()
    assert not model.is_frozen()
    model.freeze()
    assert model.is_frozen() and model.trainable_weights == []
    model.unfreeze()
    assert model.frozen_layers == []


class Unfreezes(callbacks.Callback):
    """Trains the head alone in the first epoch, the second block from the third on."""

    def on_train_begin(self, logs=None):
        self.model.freeze("block_0", "block_1")

    def on_epoch_end(self, epoch, logs=None):
        if epoch == 1:
            self.model.unfreeze("block_1")


@pytest.mark.parametrize("light", [False, True])
def test_a_callback_that_unfreezes_equals_fits_one_after_the_other(light):
    data = {"batch_size": 16, "verbose": 0, "validation_data": (X, Y)}
    model, other = network("adam"), network("adam")
    callback = Unfreezes()
    callback.light = light
    history = model.fit(X, Y, epochs=4, callbacks=[callback], **data).history
    other.freeze("block_0", "block_1")
    first = other.fit(X, Y, epochs=2, **data).history
    other.unfreeze("block_1")
    then = other.fit(X, Y, initial_epoch=2, epochs=4, **data).history
    for name, values_ in history.items():
        assert values_ == first[name] + then[name]
    expected = values(other)
    for path, value in values(model).items():
        np.testing.assert_array_equal(value, expected[path])
    assert model.optimizer.iterations == other.optimizer.iterations
    assert model.trace_counts["train"] == 2
    assert any(p.startswith("block_0") for p in model.frozen_layers)


def test_summary_and_info_show_it(capsys):
    model = network("adam")
    model.freeze("block_0")
    model.summary(expand_nested=True)
    text = capsys.readouterr().out
    assert text.count("[frozen]") == 4 and "Frozen params: 69" in text
    info = model.info()
    assert info["frozen"] == 69 and info.frozen_layers[0] == "block_0"
    assert info.trainable + info.frozen + info.state == info.parameters
    assert info.parameters == model.count_params()


def test_patterns_of_optimizers_are_those_of_weights():
    inner = exburn.Sequential([exburn.Input((6,)), layers.Dense(4)], name="body")
    assert [w.path for w in inner.weights] == ["dense/kernel", "dense/bias"]
    model = exburn.Sequential([exburn.Input((6,)), inner, layers.Dense(3)])
    assert [w.path for w in model.weights] == list(values(model))
    assert inner.weights[0].path == "body/dense/kernel"
    still = optimizers.OptimizerMap(
        optimizers.SGD(0.1), {"body/.*": optimizers.SGD(0.0)}
    )
    assert still(inner.weights[0]).learning_rate == 0.0
    model.compile(optimizers.MultiOptimizer(still), "cross_entropy", seed=0)
    before = values(model)
    model.fit(X, Y, verbose=0)
    for path, value in values(model).items():
        assert (value != before[path]).any() == (not path.startswith("body/"))


@pytest.mark.parametrize("scaled", [False, True])
def test_a_pattern_of_optimizers_that_no_weight_matches_is_an_error(scaled):
    model = exburn.Sequential([layers.Dense(4, name="body"), layers.Dense(3)])
    chosen = optimizers.OptimizerMap(
        optimizers.SGD(0.1), {"body/kernel": optimizers.SGD(0.0)}
    )
    optimizer = optimizers.MultiOptimizer(chosen)
    if scaled:
        optimizer = optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "cross_entropy", seed=0)
    chosen["bodi/.*"] = optimizers.SGD(0.0)
    with pytest.raises(UnknownNameError, match="unknown weight 'bodi/"):
        model.fit(X, Y, verbose=0)
    del chosen["bodi/.*"]
    model.freeze("body")  # what no step changes is a weight all the same
    assert np.isfinite(model.train_on_batch(X, Y))


def test_inner_and_outer_models_train_by_turns_without_compiling_again():
    inner = exburn.Sequential([exburn.Input((6,)), layers.Dense(4)])
    model = exburn.Sequential([exburn.Input((6,)), inner, layers.Dense(3)])
    inner.compile("sgd", "mse")
    model.compile("sgd", "cross_entropy")
    for _ in range(3):
        model.train_on_batch(X, Y)
        inner.train_on_batch(X, X[:, :4])
    assert model.trace_counts["train"] == inner.trace_counts["train"] == 1


def test_a_resumed_run_goes_on_with_what_had_been_unfrozen(tmp_path):
    def run(*more, epochs=4):
        model = network("adam")
        model.freeze("block_0", "block_1")
        several = [callbacks.BackupAndRestore(tmp_path), *more]
        model.fit(X, Y, epochs=epochs, verbose=0, callbacks=several)
        return model

    class Unfreezes(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                self.model.unfreeze("block_1")

    class Dies(callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 2:
                raise KeyboardInterrupt

    whole = values(run(Unfreezes()))
    with pytest.raises(KeyboardInterrupt):
        run(Unfreezes(), Dies())
    with pytest.warns(UserWarning, match="frozen as in the run that is resumed"):
        resumed = run(Unfreezes())
    for path, value in values(resumed).items():
        np.testing.assert_array_equal(value, whole[path])


def test_what_predicts_while_layers_are_frozen_drops_no_slots():
    model = network("adam")
    model.fit(X, Y, epochs=1, verbose=0)
    before = slot_paths(model)
    model.trainable = False
    model.predict(X, verbose=0)
    model.trainable = True
    assert slot_paths(model) == before
    model.layers[0].trainable = False
    model.evaluate(X, Y, verbose=0)
    model.fit(X, Y, epochs=1, verbose=0)
    assert not any(path.startswith("block_0") for path in slot_paths(model))


def unfrozen():
    """A model of whose blocks one was trained for three updates less."""
    model = network(optimizers.Adam(0.01))
    model.layers[0].trainable = False
    model.fit(X, Y, epochs=1, verbose=0)
    model.layers[0].trainable = True
    model.fit(X, Y, epochs=1, verbose=0)
    return model


def test_newcomers_go_into_files_and_copies(tmp_path):
    model = unfrozen()
    model.save(tmp_path / "m.exburn")
    copies = [exburn.load_model(tmp_path / "m.exburn"), copy.deepcopy(model)]
    copies.append(unfrozen())
    tree = model.get_state_tree()
    other = network(optimizers.Adam(0.01))
    other.set_state_tree(tree)
    state = opt_state(model)
    assert {*state["newcomers"]["0"]["of"]} == {
        path for path, _, on in iter_weights(model) if on and path.startswith("block_0")
    }
    model.fit(X, Y, epochs=1, verbose=0)
    for one in copies:
        one.fit(X, Y, epochs=1, verbose=0)
        for path, value in values(model).items():
            np.testing.assert_array_equal(value, values(one)[path])
    for mine, theirs in zip(
        *map(jax.tree.leaves, (opt_state(other), state)), strict=True
    ):
        np.testing.assert_array_equal(mine, theirs)


def test_a_run_as_stored_is_resumed(tmp_path):
    class Unfreeze(callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            self.model.layers[0].trainable = epoch > 0

    def run(folder, epochs, **options):
        model = network(optimizers.Adam(0.01))
        model.layers[0].trainable = False
        saver = callbacks.StateCheckpoint(folder)
        model.fit(
            X, Y, epochs=epochs, callbacks=[Unfreeze(), saver], verbose=0, **options
        )
        return values(model)

    whole = run(tmp_path / "whole", 3)
    run(tmp_path / "part", 2)
    with pytest.warns(UserWarning, match="frozen as in the run"):
        resumed = run(tmp_path / "part", 3, resume="auto")
    for path, value in resumed.items():
        np.testing.assert_array_equal(value, whole[path])
