"""Walking through a module: its weights, and their paths."""

from tests.module.parts import Parts

import exburn as keras
from exburn import layers
from exburn.module import traversal


def test_paths_are_those_of_the_outermost_model():
    inner = keras.Sequential([keras.Input((4,)), layers.Dense(4)], name="inner")
    alone = layers.Dense(2, name="alone")
    assert (inner.layers[0].path, alone.path) == ("dense", "alone")
    model = keras.Sequential([keras.Input((4,)), inner, Parts(), alone], name="outer")
    paths = [layer.path for layer in (*model.layers, *inner.layers)]
    assert paths == ["inner", "parts", "alone", "inner/dense"]
    assert model.path == "outer" and model.layers[1].inner.path == "parts/inner"
    for layer in (*inner.layers, alone):
        assert layer.kernel.path == f"{layer.path}/kernel"
    assert [layer.path for layer in model.clone().layers] == paths[:3]


def test_asking_for_weights_goes_through_the_model_once(monkeypatch):
    model = keras.Sequential([keras.Input((2,)), *map(layers.Dense, (3, 4, 5))])
    assert len(model.weights) == 6
    walks = []

    def counting(root, **options):
        walks.append(root)
        return traversal.iter_weights(root, **options)

    for module in ("own_weights", "seed_generator"):
        monkeypatch.setattr(f"exburn.module.{module}.iter_weights", counting)
    assert len(model.trainable_variables) == 6 and not model.non_trainable_variables
    assert walks == [model, model]
