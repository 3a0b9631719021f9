"""Several adapters of one model by name: chosen, trained, kept, taken away, merged."""

import jax
import numpy as np
import pytest
from tests.models.adapted import make, same, weights

import exburn
from exburn import errors
from exburn.applications import Llama
from exburn.module.traversal import iter_weights
from exburn.saving import load_model


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((32, 64)).astype(np.float32)
    return x, rng.integers(0, 10, 32)


def filled(model, name, seed):
    """Gives an adapter's factors values, by which outputs differ."""
    rng = np.random.default_rng(seed)
    model.set_adapter(name)
    for _, weight, learns in iter_weights(model):
        if learns and weight.get_metadata().get("lora"):
            weight.assign(0.1 * rng.standard_normal(weight.shape))
    return model


def two(**options):
    model = make()
    for seed, name in enumerate(("default", "other"), 1):
        model.add_lora(2 * seed, name=name, **options)
        filled(model, name, seed)
    return model


def test_each_is_computed_after_it_is_chosen(data):
    x, _ = data
    model, base = make(), make()
    base.set_weights(model.get_weights())
    exact = model.predict(x, verbose=0)
    outputs = {None: exact}
    for name in ("default", "other"):
        model.add_lora(2, name=name)
        outputs[name] = filled(model, name, len(name)).predict(x, verbose=0)
    assert model.adapter_names == ["default", "other"]
    assert np.abs(outputs["default"] - outputs["other"]).max() > 1e-3
    for name in ("default", None, "other", "default", "other", None):
        model.set_adapter(name)
        assert model.active_adapter == name
        np.testing.assert_array_equal(model.predict(x, verbose=0), outputs[name])
        np.testing.assert_allclose(model(x), outputs[name], atol=1e-5)
    np.testing.assert_array_equal(base.predict(x, verbose=0), exact)


def test_one_is_trained_while_others_rest(data):
    model, (x, y) = two(), data
    rest = weights(model)
    model.set_adapter("default")
    model.compile("adam", "cross_entropy", seed=0)
    model.fit(x, y, epochs=2, verbose=0)
    trained = {p for p, v in weights(model).items() if (v != rest[p]).any()}
    parts = {f"{layer}/lora_{part}" for layer in ("a", "b", "head") for part in "ab"}
    assert trained == parts
    # the other's updates begin afresh, in slots of their own
    model.set_adapter("other")
    before = weights(model)
    model.fit(x, y, epochs=1, verbose=0)
    moved = {p for p, v in weights(model).items() if (v != before[p]).any()}
    assert moved == {
        f"{layer}/lora_adapters/other/lora_{part}"
        for layer in ("a", "b", "head")
        for part in "ab"
    }
    slots = jax.tree_util.tree_leaves_with_path(
        model._training_session.holder.opt_state
    )
    names = {str(key.key) for path, _ in slots for key in path if hasattr(key, "key")}
    assert moved <= names and not parts & names


@pytest.mark.parametrize("stored", [None, "nf4"])
@pytest.mark.parametrize("active", ["default", "other", None])
def test_files_and_copies_have_all_of_them(data, tmp_path, stored, active):
    x, _ = data
    model = make().quantize(stored) if stored else make()
    for seed, (name, kind) in enumerate((("default", "lora"), ("other", "dora"))):
        model.add_lora(2 + seed, name=name, kind=kind, filter=["a", "head"][: seed + 1])
        filled(model, name, seed)
    model.set_adapter(active)
    model.save(tmp_path / "m.exburn")
    outputs = {}
    for name in ("default", "other", None):
        model.set_adapter(name)
        outputs[name] = model.predict(x, verbose=0)
    model.set_adapter(active)
    copies = [load_model(tmp_path / "m.exburn"), model.clone()]
    fresh = exburn.models.clone_model(model)
    fresh.set_weights(model.get_weights())
    for copy in (*copies, fresh):
        assert copy.active_adapter == active
        assert set(copy.adapter_names) == {"default", "other"}
        assert [w.path for w in copy.trainable_weights] == [
            w.path for w in model.trainable_weights
        ]
        for name, expected in outputs.items():
            copy.set_adapter(name)
            np.testing.assert_array_equal(copy.predict(x, verbose=0), expected)


def test_taking_away_leaves_the_others_and_at_last_the_model(data):
    x, y = data
    model = make()
    before, exact = weights(model), model.predict(x, verbose=0)
    learns = [w.path for w in model.trainable_weights]
    for name in ("default", "other", "third"):
        model.add_lora(2, name=name)
        filled(model, name, len(name))
    third = model.predict(x, verbose=0)
    model.remove_adapter("default")
    np.testing.assert_array_equal(model.predict(x, verbose=0), third)
    model.compile("adam", "cross_entropy")
    model.fit(x, y, epochs=1, verbose=0)
    assert same(before, model)  # still frozen: what the first one froze is noted
    model.remove_adapter("third")
    np.testing.assert_allclose(model.predict(x, verbose=0), exact, atol=1e-6)
    assert model.active_adapter is None and model.adapter_names == ["other"]
    model.remove_adapter("other")
    assert model.changes == [] and set(weights(model)) == set(before)
    assert [w.path for w in model.trainable_weights] == learns
    with pytest.raises(errors.UnknownNameError):
        model.remove_adapter("other")


@pytest.mark.parametrize("kind", ["lora", "rslora", "dora"])
def test_a_merge_that_is_kept_can_be_undone_to_the_same_bytes(data, kind):
    x, y = data
    model = make()
    model.add_lora(3, kind=kind)
    filled(model, "default", 5)
    before, outputs = weights(model), model.predict(x, verbose=0)
    changes = model.changes
    model.merge_lora(keep=True)
    np.testing.assert_allclose(model.predict(x, verbose=0), outputs, atol=1e-5)
    model.unmerge_lora()
    after = weights(model)
    assert {p: v.tobytes() for p, v in after.items()} == {
        p: v.tobytes() for p, v in before.items()
    }
    np.testing.assert_array_equal(model.predict(x, verbose=0), outputs)
    assert model.changes == changes
    with pytest.raises(errors.ArgumentError, match="keeps no weights"):
        model.unmerge_lora()
    model.merge_lora(keep=True)
    model.compile("adam", "cross_entropy")
    model.fit(x, y, epochs=1, verbose=0)
    with pytest.raises(errors.ArgumentError, match="changed since the merge"):
        model.unmerge_lora()


def test_alone_in_files_under_other_names(data, tmp_path):
    x, _ = data
    model = two(kind="dora")
    outputs = model.predict(x, verbose=0)
    model.save_lora(tmp_path / "one")
    model.set_adapter("default")
    model.save_lora(tmp_path / "other", name="other")
    files = [tmp_path / f"{name}.safetensors" for name in ("one", "other")]
    assert files[0].read_bytes() == files[1].read_bytes()
    fresh = make()
    fresh.set_weights([w.numpy() for w in model.weights if "lora" not in w.path])
    fresh.add_lora(1)
    fresh.load_lora(files[0], name="task")
    assert fresh.adapter_names == ["default", "task"]
    np.testing.assert_allclose(fresh.predict(x, verbose=0), outputs, atol=1e-5)
    with pytest.raises(errors.FileFormatError, match="another model"):
        fresh.load_lora(files[0])  # of another rank and kind than "default"


def test_texts_are_those_of_the_active_one():
    model = Llama(40, layers=2, width=32, heads=4, key_value_heads=2, mlp_width=48)
    prompt = np.array([[3, 1, 4]])
    texts = {None: model.generate(prompt, 8)}
    for seed, name in enumerate(("a", "b"), 1):
        model.add_lora(4, alpha=64, name=name)
        texts[name] = filled(model, name, seed).generate(prompt, 8)
    assert len({str(text) for text in texts.values()}) == 3
    for name in ("a", None, "b", "a"):
        model.set_adapter(name)
        np.testing.assert_array_equal(model.generate(prompt, 8), texts[name])


def test_what_cannot_be_is_refused():
    model = two()
    with pytest.raises(errors.UnknownNameError, match="default"):
        model.set_adapter("defualt")
    with pytest.raises(errors.ArgumentError, match="rest beside the weights"):
        model.merge_lora()
    model.set_adapter(None)
    for act in (model.merge_lora, lambda: model.save_lora("x")):
        with pytest.raises(errors.ArgumentError, match="no adapter is active"):
            act()
    for name in ("", "a/b", "items", 3, "a b", ".."):
        with pytest.raises(errors.ArgumentError, match="name of an adapter"):
            model.add_lora(2, name=name)
    with pytest.raises(errors.ArgumentError, match="kind"):
        model.add_lora(2, kind="lokr", name="c")
    with pytest.raises(errors.ArgumentError, match="dropout"):
        model.add_lora(2, dropout=1.0, name="c")
    with pytest.raises(errors.ArgumentError, match="low-rank adapter"):
        model.quantize("int8")
    conv = exburn.Sequential(
        [exburn.Input((9, 9, 3)), exburn.layers.Conv2D(32, 3, name="conv")]
    )
    with pytest.raises(errors.ArgumentError, match="inputs of Dense") as refusal:
        conv.add_lora(2, dropout=0.1)
    assert "conv" in str(refusal.value) and conv.changes == []
