"""Which trials share a program, and the states that their lanes begin with."""

import numpy as np
import pytest
from tests.tuning.models import X, make_model, read_data

import exburn
from exburn import layers
from exburn.errors import ArgumentError
from exburn.optimizers import SGD
from exburn.tuning import sweep
from exburn.tuning.hyperparameters import find
from exburn.tuning.variants import make_variants


def variants_of(model, trials, epochs=3):
    data = read_data(model)
    paths = dict.fromkeys(path for trial in trials for path in trial)
    return make_variants(
        model, data, {p: find(model, p) for p in paths}, trials, epochs
    )


def test_numbers_that_a_step_computes_with_are_arrays_of_one_program():
    trials = [
        {"learning_rate": 0.1, "drop/rate": 0.1, "norm/momentum": 0.9},
        {"learning_rate": 0.2, "drop/rate": 0.5},
    ]
    one, two = variants_of(make_model(), trials)
    assert one is two and one.arrays.keys() == {"drop/rate", "norm/momentum"}
    state = one.states.initial(trials)
    assert state.opt_state["rate"]["learning_rate"].tolist() == [
        np.float32(0.1),
        np.float32(0.2),
    ]
    momentum = state.others[one.arrays["norm/momentum"]]
    assert momentum.tolist() == [np.float32(0.9), np.float32(0.99)]  # its own


def test_what_no_array_stands_for_makes_programs_of_their_own():
    trials = [
        {"hidden/activation": a, "seed": s} for a in ("relu", "tanh") for s in (1, 2)
    ]
    made = variants_of(make_model(), trials)
    assert made[0] is made[1] and made[2] is made[3] and made[0] is not made[2]
    assert "hidden/activation" in made[0].constant
    assert made[2].model.get_layer("hidden").activation.__name__ == "tanh"


def test_a_lane_begins_with_the_weights_of_its_seed():
    trials = [{"seed": 4}, {"seed": 5}]
    variants = variants_of(make_model(seed=9), trials)
    state = variants[0].states.initial(trials)
    for lane, seed in enumerate((4, 5)):
        alone = make_model(seed=seed).get_layer("hidden").kernel
        own = state.params["hidden/kernel"][lane]
        np.testing.assert_array_equal(own, np.asarray(alone))


def test_weights_that_somebody_has_changed_are_those_of_all_lanes():
    model, trials = make_model(), [{"seed": 4}, {"seed": 5}]
    kernel = np.ones((5, 6), np.float32)
    model.get_layer("hidden").kernel.assign(kernel)
    variants = variants_of(model, trials)
    state = variants[0].states.initial(trials)
    np.testing.assert_array_equal(state.params["hidden/kernel"], [kernel, kernel])
    assert (state.params["out/kernel"][0] != state.params["out/kernel"][1]).any()


@pytest.mark.parametrize("trained", [False, True])
def test_a_momentum_that_begins_at_zero_is_varied_all_the_same(trained):
    model = make_model(optimizer=SGD(0.1))
    if trained:
        model.fit(np.ones((8, 5)), np.zeros(8, int), verbose=0)
    trials = [{"momentum": 0.0}, {"momentum": 0.9}]
    variant = variants_of(model, trials)[0]
    assert variant.arrays.keys() == {"momentum"}
    velocity = [v for v in np.asarray(variant.states.initial(trials).step)]
    assert velocity == [int(trained)] * 2
    assert model.optimizer.momentum == 0.0


def test_an_interval_that_a_layer_makes_of_a_number_is_an_array_too():
    stack = [layers.RandomTranslation(0.2, 0.1, name="move"), layers.Flatten()]
    model = exburn.Sequential([exburn.Input((5, 1, 1)), *stack, layers.Dense(3)])
    model.compile("sgd", "cross_entropy", seed=1)
    data = read_data(model, x=X[:, :, None, None])
    trials = [{"move/height_factor": 0.1}, {"move/height_factor": (-0.3, 0.0)}]
    places = {path: find(model, path) for path in trials[0]}
    variant = make_variants(model, data, places, trials, 1)[0]
    held = variant.states.initial(trials).others[variant.arrays["move/height_factor"]]
    np.testing.assert_allclose(held, [[-0.1, 0.1], [-0.3, 0.0]], rtol=1e-6)


WEIGHTS = {0: 2.0, 1: 1.0, 2: 0.5}


def lookup_model():
    """A lookup on the host, whose vectors the program takes."""
    symbol = exburn.Input((2,), dtype="string")
    found = layers.StringLookup(
        vocabulary=list("1234"), output_mode="multi_hot", name="lookup"
    )(symbol)
    model = exburn.Model(symbol, layers.Dense(3, name="out")(found))
    model.compile(SGD(0.1), "cross_entropy", seed=3)
    return model


def test_what_the_host_makes_of_the_data_is_made_for_each_value():
    """Also where it is wider; and in batches, of other sizes."""
    numbers = np.random.default_rng(0).integers(0, 6, (24, 2))
    x, y = numbers.astype(str), numbers.sum(1) % 3
    options = {"epochs": 2, "verbose": 0, "validation_split": 0.25}
    over = {"lookup/num_oov_indices": [1, 2], "batch_size": [4, 8]}
    result = sweep(lookup_model(), x, y, over=over, class_weight=WEIGHTS, **options)
    for record in result.records:
        alone = lookup_model()
        if record.trial["lookup/num_oov_indices"] == 2:
            alone = find(alone, "lookup/num_oov_indices").put(alone, 2)
        rows = record.trial["batch_size"]
        alone.fit(x, y, batch_size=rows, class_weight=WEIGHTS, **options)
        for name, values in alone.history.history.items():
            np.testing.assert_allclose(record.history[name], values, rtol=1e-5)


def test_data_that_the_host_has_made_cannot_be_made_anew():
    model = lookup_model()
    x = model.encode_inputs([["1", "2"], ["3", "9"]])
    with pytest.raises(ArgumentError, match="'lookup/num_oov_indices' decides"):
        sweep(
            model,
            x,
            np.array([0, 1]),
            over={"lookup/num_oov_indices": [2]},
            verbose=0,
        )
