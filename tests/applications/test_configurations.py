"""Configurations of all families: sizes beside the tensors, and what is written."""

import json
import resource
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from tests.applications import hub_files

from exburn.applications import (
    BERT,
    GPT2,
    Decoder,
    EfficientNetLite,
    Llama,
    ViT,
    from_pretrained,
)
from exburn.applications.families import FAMILIES
from exburn.errors import ArgumentError, FileFormatError

TEXT = {"vocabulary_size": 11, "layers": 2, "width": 8, "heads": 2, "mlp_width": 12}
IMAGES = {
    "input_shape": (8, 8, 3),
    "patch_size": 4,
    "layers": 2,
    "width": 8,
    "heads": 2,
}
MODELS = {
    "gpt2": lambda: GPT2(**TEXT, positions=16, dropout=0.2, activation="gelu"),
    "llama": lambda: Llama(**TEXT, key_value_heads=1, rope_factor=2.0, rope_base=500),
    "mistral": lambda: Llama(**TEXT, sliding_window=4, tie_embeddings=True),
    **{
        name: lambda name=name: Decoder(name, **TEXT, key_value_heads=1, head_size=4)
        for name in sorted(FAMILIES.keys() - {"llama", "mistral"})
    },
    "gemma3-long": lambda: Decoder(
        "gemma3_text",
        **TEXT | {"layers": 3, "key_value_heads": 2},
        window_layers=[True, False, True],
        sliding_window=5,
        rope_scaling={"rope_type": "linear", "factor": 4.0},
        logit_soft_cap=9.0,
    ),
    "qwen2-window": lambda: Decoder(
        "qwen2",
        **TEXT,
        key_value_heads=2,
        sliding_window=3,
        window_layers=[False, True],
        rope_scaling={
            "rope_type": "yarn",
            "factor": 2.0,
            "original_max_position_embeddings": 8,
        },
    ),
    "smollm3-window": lambda: Decoder(
        "smollm3",
        **TEXT,
        key_value_heads=2,
        sliding_window=3,
        rope_layers=[True, False],
        attention_bias=True,
    ),
    "phi3-part": lambda: Decoder(
        "phi3", **TEXT, partial_rotary_factor=0.5, dropout=0.1
    ),
    "bert": lambda: BERT(**TEXT, positions=16, activation="gelu_tanh"),
    "bert-classes": lambda: BERT(**TEXT, positions=16, classes=3, top_dropout=0.3),
    "vit": lambda: ViT(**IMAGES, mlp_width=12, classes=3, labels=["a", "b", "c"]),
    "vit-body": lambda: ViT(**IMAGES, mlp_width=12, include_top=False),
    "vit-timm": lambda: ViT(**IMAGES, mlp_width=12, classes=3, activation="quick_gelu"),
    "lite-timm": lambda: EfficientNetLite(width=0.25, depth=0.2, size=32, classes=3),
}


def style_of(name):
    return "timm" if name.endswith("timm") else "transformers"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Folders of the models, each made when it is first asked for."""
    root, made = tmp_path_factory.mktemp("families"), {}

    def folder(name):
        if name not in made:
            made[name] = MODELS[name]()
            made[name].save_pretrained(root / name, style=style_of(name))
        return root / name, made[name]

    return folder


@pytest.mark.parametrize("name", MODELS)
def test_what_is_written_makes_the_same_model(name, folders, tmp_path):
    folder, model = folders(name)
    again = from_pretrained(folder)
    one, two = model.get_config(), again.get_config()
    config = json.loads((folder / "config.json").read_text())
    left_out = {"name", "size", "input_shape"} if name == "lite-timm" else {"name"}
    for key in set(one) - left_out:
        same = np.array_equal(one[key], two[key]) if one[key] != two[key] else True
        either = (one[key], two[key])
        assert same or None in either or key in ("mean", "deviation"), (key, either)
    if name != "lite-timm":
        np.testing.assert_array_equal(
            again.get_weights()[0], model.get_weights()[0], strict=True
        )
    again.save_pretrained(tmp_path)
    for file in folder.iterdir():
        assert (tmp_path / file.name).read_bytes() == file.read_bytes(), file.name
    # Another name of the same thing stays as it is.
    config |= {"use_cache": False} if style_of(name) == "transformers" else {}
    if config.get("activation_function") == "gelu":
        config["activation_function"] = "gelu_python"
    (folder / "config.json").write_text(text := json.dumps(config))
    from_pretrained(folder).save_pretrained(tmp_path)
    assert (tmp_path / "config.json").read_text() == text


HARMLESS = {
    ("num_features",),
    ("pretrained_cfg", "num_classes"),
    ("rope_theta",),
    ("query_pre_attn_scalar",),
    ("decoder_sparse_step",),  # no size
    ("rope_scaling", "original_max_position_embeddings"),
}


def counts(config, path=()):
    """The places of whole numbers and factors in a configuration, also in lists."""
    for key, value in config.items() if isinstance(config, dict) else enumerate(config):
        if isinstance(value, dict | list) and key not in ("id2label", "label2id"):
            yield from counts(value, (*path, key))
        elif type(value) is int or str(key).endswith("_multiplier"):
            yield (*path, key)


def changed(config, place, value):
    config = json.loads(json.dumps(config))
    inside = config
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value
    return config


@pytest.mark.parametrize("name", MODELS)
def test_a_number_that_the_tensors_have_not_is_found_before_anything_is_made(
    name, folders, tmp_path
):
    folder, _ = folders(name)
    whole = json.loads((folder / "config.json").read_text())
    (tmp_path / "model.safetensors").symlink_to(folder / "model.safetensors")
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    places = [place for place in counts(whole) if place not in HARMLESS]
    assert len(places) >= 4
    for place in places:
        for number in (2**31, 2**62, 10**30):
            config = changed(whole, place, number)
            (tmp_path / "config.json").write_text(json.dumps(config))
            start = time.monotonic()
            with pytest.raises(FileFormatError):
                from_pretrained(tmp_path)
            assert time.monotonic() - start < 2, place
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used
    assert grown < 200 << 10  # KiB


def tie(folder, kind, change):
    """A folder with a table for what is one table, equal but for ``change``."""
    tensors = load_file(folder / "model.safetensors")
    (name,) = [n for n in tensors if n.endswith(("wte.weight", "embed_tokens.weight"))]
    tensors["lm_head.weight"] = tensors[name] + np.float32(change)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return name


@pytest.mark.parametrize("kind", ["gpt2", "mistral"])
def test_two_tables_that_are_one_must_agree(kind, tmp_path):
    MODELS[kind]().save_pretrained(tmp_path)
    tie(tmp_path, kind, 0.0)
    model = from_pretrained(tmp_path)
    model.save_pretrained(tmp_path / "again")
    files = [tmp_path / place / "model.safetensors" for place in (".", "again")]
    assert files[0].read_bytes() == files[1].read_bytes()
    # The copy follows a table that has been trained.
    table = model.get_layer("token_embedding")
    table.set_weights([np.asarray(table.get_weights()[0]) + 1])
    model.save_pretrained(tmp_path / "trained")
    assert type(from_pretrained(tmp_path / "trained")) is type(model)
    name = tie(tmp_path, kind, 0.5)
    with pytest.raises(FileFormatError, match=f"(?s)differ.*{name}, lm_head.weight"):
        from_pretrained(tmp_path)


def test_an_error_is_the_users_where_the_users_argument_is_wrong(folders):
    folder, _ = folders("bert")
    with pytest.raises(ArgumentError, match="pooling"):
        BERT.from_pretrained(folder, pooling="last")


def test_a_file_that_is_no_json_is_an_error(tmp_path):
    tensors = hub_files.arrays(hub_files.vit_shapes())
    hub_files.write(tmp_path, hub_files.VIT, tensors)
    for text in ("{", "[]", '{"size": 8, "size": 9}'):
        (tmp_path / "preprocessor_config.json").write_text(text)
        with pytest.raises(FileFormatError, match=r"preprocessor_config\.json|twice"):
            ViT.from_pretrained(tmp_path)
