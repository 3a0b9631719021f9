"""Open sizes of inputs: which may differ in a file, and what they are multiples of."""

from typing import Any, NamedTuple

import jax
import numpy as np
import pytest

import exburn
from exburn import layers, ops
from exburn.core.symbolic_shapes import symbol
from exburn.errors import ArgumentError, ExportError, ShapeError
from exburn.export import ExportArchive, load_archive
from exburn.export.open_sizes import freest, solve_sizes

pytest.importorskip("onnxruntime")


def sequence(name, width=4, **options):
    return exburn.Input((None, width), name=name, **options)


def words(name):
    return exburn.Input((None,), name=name, dtype="int32")


def two_means():
    a, b = sequence("left"), sequence("right")
    return [a, b], ops.mean(a, 1) + ops.mean(b, 1)


def attention():
    a, b = sequence("left"), sequence("right")
    return [a, b], layers.MultiHeadAttention(2, 3)(a, b)


def masked_attention():
    a, b = sequence("left"), sequence("right")
    mask = exburn.Input((None, None), name="mask", dtype="bool")
    heads = layers.MultiHeadAttention(1, 3)
    return [a, b, mask], heads(a, b, attention_mask=mask)


def tied():
    ids, mask = words("ids"), words("mask")
    weights = ops.cast(mask, "float32")[..., None]
    return [ids, mask], ops.sum(layers.Embedding(9, 3)(ids) * weights, 1)


def tied_pairs():
    def encode(ids, mask):
        weights = ops.cast(mask, "float32")[..., None]
        return layers.Embedding(9, 3)(ids) * weights

    given = [words(n) for n in ("source", "source_mask", "target", "target_mask")]
    source, target = encode(*given[:2]), encode(*given[2:])
    return given, ops.einsum("btd,bsd->bts", source, target)


def joined():
    a, b = sequence("left"), sequence("right")
    return [a, b], layers.Concatenate(axis=1)([a, b])


def image_and_words():
    image, ids = exburn.Input((None, None, 2), name="image"), words("ids")
    seen = layers.GlobalAveragePooling2D()(layers.Conv2D(3, 3)(image))
    return [image, ids], seen + ops.mean(layers.Embedding(9, 3)(ids), 1)


def unet():
    image = exburn.Input((None, None, 1), name="image")
    first = layers.Conv2D(2, 3, padding="same")(image)
    second = layers.Conv2D(2, 3, padding="same")(layers.MaxPooling2D()(first))
    deep = layers.UpSampling2D()(layers.MaxPooling2D()(second))
    deep = layers.UpSampling2D()(layers.Concatenate()([deep, second]))
    return image, layers.Concatenate()([deep, first])


def unet_of_time():
    sound, ids = sequence("sound", 2), words("ids")
    deep = layers.UpSampling1D(3)(layers.MaxPooling1D(3)(sound))
    about = ops.mean(layers.Embedding(9, 4)(ids), 1, keepdims=True)
    return [sound, ids], layers.Concatenate()([deep, sound]) + about


def square():
    image = exburn.Input((None, None, 2), name="image")
    return image, ops.matmul(
        ops.moveaxis(image, -1, 1), ops.swapaxes(ops.moveaxis(image, -1, 1), 2, 3)
    ) + ops.moveaxis(image, -1, 1)


class Case(NamedTuple):
    """A model, the shapes that its inputs have in a file, and symbols to try."""

    make: Any
    shapes: str
    sizes: dict[str, int]


CASES = {
    "two_means": Case(
        two_means,
        "[batch, left_d1, 4] [batch, right_d1, 4]",
        {"left_d1": 4, "right_d1": 9},
    ),
    "attention": Case(
        attention,
        "[batch, left_d1, 4] [batch, right_d1, 4]",
        {"left_d1": 7, "right_d1": 2},
    ),
    "masked_attention": Case(
        masked_attention,
        "[batch, left_d1, 4] [batch, right_d1, 4] [batch, left_d1, right_d1]",
        {"left_d1": 3, "right_d1": 5},
    ),
    "tied": Case(tied, "[batch, d1] [batch, d1]", {"d1": 5}),
    "tied_pairs": Case(
        tied_pairs,
        "[batch, source_d1] [batch, source_d1] [batch, target_d1] [batch, target_d1]",
        {"source_d1": 3, "target_d1": 8},
    ),
    "joined": Case(
        joined,
        "[batch, left_d1, 4] [batch, right_d1, 4]",
        {"left_d1": 1, "right_d1": 4},
    ),
    "image_and_words": Case(
        image_and_words,
        "[batch, image_d1, d2, 2] [batch, ids_d1]",
        {"image_d1": 7, "d2": 9, "ids_d1": 2},
    ),
    "unet": Case(unet, "[batch, 4*d1, 4*d2, 1]", {"d1": 3, "d2": 2}),
    "unet_of_time": Case(
        unet_of_time,
        "[batch, 3*sound_d1, 2] [batch, ids_d1]",
        {"sound_d1": 4, "ids_d1": 5},
    ),
    "square": Case(square, "[batch, d1, d1, 2]", {"d1": 5}),
}


@pytest.mark.parametrize("name", list(CASES))
def test_each_open_size_is_as_free_as_the_model_lets_it(name, tmp_path):
    case = CASES[name]
    model = exburn.Model(*case.make())
    rng = np.random.default_rng(0)
    for suffix in ("onnx", "stablehlo"):
        report = model.export(path := tmp_path / f"m.{suffix}")
        told = [text[text.index("[") :] for text in report.inputs.values()]
        assert " ".join(told) == case.shapes
        for more in (0, 3):
            x = []
            for shape, spec in zip(
                told, jax.tree.leaves(model.program_inputs), strict=True
            ):
                known = {name: n + more for name, n in case.sizes.items()}
                sizes = eval(shape, {"batch": 2, **known})
                kind = np.dtype(spec.dtype)
                value = rng.uniform(0, 2, sizes)
                x.append(value.astype(kind) if kind.kind != "b" else value > 0.4)
            given = x if len(x) > 1 else x[0]
            found = exburn.predict(path, given)
            np.testing.assert_allclose(
                found, model.predict(given, verbose=0), rtol=1e-4, atol=1e-5
            )


def test_sizes_that_a_file_does_not_take_are_refused(tmp_path):
    for make, x, says in (
        (tied, [np.ones((2, 3), "int32"), np.ones((2, 4), "int32")], "must be equal"),
        (unet, np.ones((1, 8, 10, 1), "float32"), "a multiple of 4, received 10"),
    ):
        model = exburn.Model(*make())
        for suffix in ("onnx", "stablehlo"):
            model.export(path := tmp_path / f"m.{suffix}")
            with pytest.raises(ShapeError, match=says):
                exburn.predict(path, x)
        with pytest.raises(ShapeError, match=says):
            model.export(tmp_path / "m.onnx", samples=x)


def test_rows_may_be_open_and_other_sizes_those_of_the_samples(tmp_path):
    model = exburn.Model(*unet())
    x = np.random.default_rng(0).random((3, 12, 8, 1), np.float32)
    path = tmp_path / "m.onnx"
    report = model.export(path, dynamic="batch", samples=x)
    assert report.inputs == {"image": "float32[batch, 12, 8, 1]"}
    np.testing.assert_allclose(
        exburn.predict(path, x[:2]), model.predict(x[:2], verbose=0), 1e-5, 1e-6
    )
    with pytest.raises(ArgumentError, match="dynamic='batch' every size"):
        model.export(path, dynamic="batch")
    with pytest.raises(ArgumentError, match="'all', 'batch' or None"):
        model.export(path, dynamic="rows")


def test_samples_of_equal_lengths_are_run_at_unlike_ones(tmp_path, monkeypatch):
    """A file that takes two lengths to be equal is refused whatever the samples."""
    from exburn.export.onnx.graph import OnnxGraph

    model = exburn.Model(*two_means())
    x = [np.random.default_rng(n).random((2, 6, 4), np.float32) for n in (0, 1)]
    path, size = tmp_path / "m.onnx", OnnxGraph.size

    def wrong(graph, _):
        return size(graph, symbol("left_d1"))

    monkeypatch.setattr(OnnxGraph, "size", wrong)
    for samples in (None, x):
        with pytest.raises(ExportError, match="other values"):
            model.export(path, samples=samples)
    monkeypatch.undo()
    assert "2 rows" in model.export(path, samples=x).checked


def test_a_model_that_needs_the_size_says_what_to_fix(tmp_path):
    model = exburn.Model(
        x := exburn.Input((None,)), layers.Lambda(lambda x: x * int(x.shape[1]))(x)
    )
    with pytest.raises(ArgumentError, match="sizes that are open") as caught:
        model.export(tmp_path / "m.onnx")
    assert 'dynamic="batch", samples=' in str(caught.value)
    x = np.ones((2, 3), np.float32)
    model.export(tmp_path / "m.onnx", dynamic="batch", samples=x)


def test_arguments_of_an_endpoint_have_sizes_of_their_own(tmp_path):
    archive = ExportArchive()
    spec = exburn.InputSpec(shape=(None, None, 3))
    signature = [spec, spec]
    archive.add_endpoint(
        "means", lambda a, b: a.mean((0, 1)) + b.mean((0, 1)), signature
    )
    archive.add_endpoint("total", lambda a, b: a + b, signature)
    archive.write_out(tmp_path, verbose=False)
    loaded = load_archive(tmp_path)
    a, b = np.ones((2, 4, 3), np.float32), np.ones((5, 9, 3), np.float32)
    np.testing.assert_allclose(loaded.means(a, b), 2 * np.ones(3))
    np.testing.assert_allclose(loaded.total(a, a), 2 * a)
    with pytest.raises(ShapeError, match="must be equal"):
        loaded.total(a, b)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_the_finest_choice_is_found(count):
    """Random equalities and multiples: no pair shares a symbol that need not."""
    rng = np.random.default_rng(count)
    for _ in range(4):
        groups, multiples = rng.integers(0, count, count), rng.choice([1, 2, 6], count)
        specs = [jax.ShapeDtypeStruct((None, None), np.float32) for _ in groups]

        def attempt(specs, groups=groups, multiples=multiples):
            sizes = [spec.shape[1] for spec in specs]
            for size, group in zip(sizes, groups, strict=True):
                multiple = int(multiples[group])
                if size != sizes[list(groups).index(group)]:
                    raise TypeError("unlike")
                if size // multiple * multiple != size:
                    raise ValueError("no multiple")
            return [str(size) for size in sizes]

        names = [f"x{n}" for n in range(count)]
        found = freest(attempt, specs, names, rows=True)
        assert len(set(found)) == len(set(groups))
        for text, group in zip(found, groups, strict=True):
            factor = text.partition("*")[0] if "*" in text else "1"
            assert int(factor) == multiples[group]


def test_sizes_are_solved_for_their_symbols():
    shapes = [("batch", "2*d1", 3), ("batch", "d1")]
    assert solve_sizes("op", shapes, [(4, 6, 3), (4, 3)]) == {"batch": 4, "d1": 3}
    with pytest.raises(ShapeError, match="sizes d1 must be equal"):
        solve_sizes("op", shapes, [(4, 6, 3), (4, 4)])
