"""Rules lead from a file's names to a model's paths, and back."""

import numpy as np
import pytest

from exburn import layers, models
from exburn.errors import ArgumentError, FileFormatError, ShapeError
from exburn.weights import concat, rules, split, split_heads, transpose

GPT = [
    (r"wte\.weight", "tokens/embeddings"),
    (
        r"h\.(\d+)\.attn\.c_attn\.weight",
        tuple(f"block_{{1}}/att/{part}/kernel" for part in ("query", "key", "value")),
        split >> split_heads,
    ),
    (r"h\.\d+\.attn\.bias", None),
]
PARTS = [f"block_3/att/{part}/kernel" for part in ("query", "key", "value")]


def test_names_become_paths_and_paths_the_same_names():
    made = rules(GPT, prefix="transformer.")
    names = ["transformer.wte.weight", "h.3.attn.c_attn.weight", "h.3.attn.bias", "x"]
    plan = made.load_plan(names)
    assert [move.targets for move in plan.moves] == [
        ("tokens/embeddings",),
        tuple(PARTS),
    ]
    assert plan.ignored == ["h.3.attn.bias"] and plan.unknown == ["x"]
    saved = made.save_plan(["tokens/embeddings", *PARTS])
    assert [m.sources for m in saved] == [
        ("wte.weight",),
        ("h.3.attn.c_attn.weight",),
    ]
    saved = made.written_as(names).save_plan(["tokens/embeddings", *PARTS])
    assert [m.sources for m in saved] == [
        ("transformer.wte.weight",),
        ("h.3.attn.c_attn.weight",),
    ]


def test_several_tensors_make_one_weight_if_all_are_there():
    made = rules([((r"(\w+)\.q", r"(\w+)\.k"), "{1}/qk/kernel", concat)])
    plan = made.load_plan(["a.q", "b.k", "a.k"])
    assert plan.moves[0].sources == ("a.q", "a.k") and plan.unknown == ["b.k"]
    assert made.save_plan(["a/qk/kernel"])[0].sources == ("a.q", "a.k")


def test_a_name_that_is_known_twice_counts_once():
    plan = rules([("w", "dense/kernel")], prefix="net.").load_plan(["w", "net.w"])
    assert len(plan.moves) == 1 and plan.unknown == ["net.w"]


def test_the_first_rule_counts():
    made = rules([("norm.weight", "n/gamma"), ("norm.(weight|gamma)", "n/{1}")])
    assert made.load_plan(["norm.weight"]).moves[0].targets == ("n/gamma",)
    assert made.save_plan(["n/gamma"])[0].sources == ("norm.weight",)
    assert made.written_as(["norm.gamma"]).save_plan(["n/gamma"])[0].sources == (
        "norm.gamma",
    )
    made = rules([("b.(0).pw", "{1}/out"), (r"b.([1-9]).pwl", "{1}/out")])
    assert [m.sources for m in made.save_plan(["0/out", "3/out"])] == [
        ("b.0.pw",),
        ("b.3.pwl",),
    ]
    both = rules([("a", "x")]) + rules([("b", "x")])
    assert both.save_plan(["x"])[0].sources == ("a",) and len(both) == 2


@pytest.mark.parametrize(
    "entry, text",
    [
        (("a",), "a rule is"),
        (("a(", "x"), "not a regular expression"),
        ((r"(\d+)", "x"), "groups"),
        (("a", "x/{1}"), "groups"),
        (("a", 3), "texts"),
        (("a", "x", np.transpose), "transform"),
        (([], "x"), "texts"),
    ],
)
def test_rules_of_another_form_are_refused(entry, text):
    with pytest.raises(ArgumentError, match=text):
        rules([entry])


def test_what_cannot_be_saved_is_an_error():
    with pytest.raises(ArgumentError, match="no rule for the weight 'y'"):
        rules([("a", "x")]).save_plan(["y"])
    with pytest.raises(ArgumentError, match="the form of one name"):
        rules([("a.*", "x")]).save_plan(["x"])
    with pytest.raises(ArgumentError, match="does not have"):
        rules(GPT).save_plan(PARTS[:2])


@pytest.fixture(scope="module")
def model():
    return models.Sequential([layers.Input((3,)), layers.Dense(2, name="fc")])


RULES = rules([("net.weight", "fc/kernel", transpose), ("net.bias", "fc/bias")])


def test_a_model_loads_and_saves_by_rules(model, tmp_path):
    kernel = np.arange(6, dtype="f4").reshape(2, 3)
    file = tmp_path / "theirs.npz"
    np.savez(file, **{"net.weight": kernel, "net.bias": np.array([7, 8], "f4")})
    report = model.load_weights(file, rules=RULES)
    assert report.complete and report.loaded == ["fc/kernel", "fc/bias"]
    np.testing.assert_array_equal(model.weights[0], kernel.T)
    model.save_weights(tmp_path / "ours.safetensors", rules=RULES)
    from safetensors.numpy import load_file

    found = load_file(tmp_path / "ours.safetensors")
    np.testing.assert_array_equal(found["net.weight"], kernel)
    with pytest.raises(ArgumentError, match=r"exburn\.weights\.rules"):
        model.load_weights(file, rules=[("a", "b")])


def test_what_does_not_fit_changes_nothing(model, tmp_path):
    before = model.get_weights()
    file = tmp_path / "theirs.npz"
    np.savez(file, **{"net.weight": np.ones((3, 3)), "net.bias": np.ones(2)})
    with pytest.raises(ShapeError, match=r"fc/kernel has shape \(3, 2\)"):
        model.load_weights(file, rules=RULES)
    np.savez(file, **{"net.weight": np.ones((2, 3)), "more": np.ones(2)})
    with pytest.raises(FileFormatError, match="not in the model: more"):
        model.load_weights(file, rules=RULES)
    np.savez(file, a=np.ones(2), b=np.ones(2))
    with pytest.raises(ArgumentError, match="several tensors"):
        model.load_weights(file, rules=rules([("a", "fc/bias"), ("b", "fc/bias")]))
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
