"""Tests of ``exburn.applications.rope_entries``."""

import pytest

from exburn.applications.families import FAMILIES
from exburn.applications.rope_entries import (
    ROPE,
    rope_arguments,
    rope_arguments_by_layer,
    rope_config,
)
from exburn.errors import FileFormatError
from exburn.weights.entries import Table

TABLE = Table("config.json", ROPE)
FACTORS = {"short_factor": [1.0, 1.5], "long_factor": [2.0, 4.0]}


def read(**told):
    return rope_arguments(TABLE.read(told, "op"), "op")


def test_older_and_newer_spellings_are_read():
    plain = {"rope_base": 10000.0, "rope_scaling": None, "partial_rotary_factor": 1.0}
    assert read() == plain
    assert read(rope_theta=500) == plain | {"rope_base": 500.0}
    assert read(rope_parameters={"rope_theta": 500, "rope_type": "default"}) == (
        plain | {"rope_base": 500.0}
    )
    assert read(rope_parameters={"partial_rotary_factor": 0.5}) == read(
        partial_rotary_factor=0.5
    )
    linear = {"rope_type": "linear", "factor": 4.0}
    for told in (
        {"rope_scaling": {"type": "linear", "factor": 4}},
        {"rope_parameters": {"rope_type": "linear", "factor": 4}},
    ):
        assert read(**told)["rope_scaling"] == linear
    dynamic = read(
        max_position_embeddings=64, rope_scaling={"type": "dynamic", "factor": 2}
    )
    assert dynamic["rope_scaling"]["original_max_position_embeddings"] == 64


def test_the_first_context_is_where_transformers_looks_for_it():
    for told, context, factor in (
        ({"max_position_embeddings": 64}, 64, 1.0),
        (
            {
                "max_position_embeddings": 64,
                "original_max_position_embeddings": 16,
            },
            16,
            4.0,
        ),
    ):
        scaling = read(rope_scaling={"type": "su", **FACTORS}, **told)["rope_scaling"]
        assert scaling["rope_type"] == "longrope"
        assert scaling["original_max_position_embeddings"] == context
        assert scaling["factor"] == factor
    inner = {"rope_type": "yarn", "original_max_position_embeddings": 8, "factor": None}
    scaling = read(max_position_embeddings=64, rope_parameters=inner)["rope_scaling"]
    assert scaling["original_max_position_embeddings"] == 8 and scaling["factor"] == 8
    with pytest.raises(FileFormatError, match="'yarn' scaling of positions needs"):
        read(max_position_embeddings=64, rope_parameters={"rope_type": "yarn"})


def test_kinds_of_layers_may_have_their_own():
    told = {
        "rope_parameters": {
            "full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8},
            "sliding_attention": {"rope_theta": 1e4},
        }
    }
    found = rope_arguments_by_layer(TABLE.read(told, "op"), "op")
    assert found["full_attention"]["rope_base"] == 1e6
    assert found["full_attention"]["rope_scaling"]["factor"] == 8
    assert found["sliding_attention"]["rope_scaling"] is None
    both = rope_arguments_by_layer(TABLE.read({"rope_theta": 5}, "op"), "op")
    assert both["full_attention"] == both["sliding_attention"]
    with pytest.raises(FileFormatError, match="does not have: full_attention"):
        read(**told)


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ({"rope_scaling": {"type": "linear"}}, "needs factor"),
        ({"rope_scaling": {"rope_type": "mrope"}}, "'rope_scaling.rope_type' in conf"),
        ({"rope_parameters": {"new": 3}}, "'rope_parameters.new'"),
        ({"rope_parameters": {"beta_fast": 32}}, "does not take: 'beta_fast'"),
        ({"rope_parameters": 3}, "must be an object"),
        ({"rope_parameters": {"full_attention": 3}}, "object for each kind of layer"),
        ({"partial_rotary_factor": 1.5}, "must be at most 1"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "needs factor, orig"),
        (
            {"rope_scaling": {"type": "linear", "factor": 2.0, "mscale": 1.0}},
            "describes no scaling",
        ),
        ({"rope_scaling": {"type": "linear", "factor": "2"}}, "scaling.factor' in"),
    ],
)
def test_what_may_change_the_computation_is_refused(told, text):
    with pytest.raises(FileFormatError, match=text):
        read(**told)


@pytest.mark.parametrize(
    "told",
    [
        {"rope_theta": 500.0, "partial_rotary_factor": 0.5},
        {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {
            "max_position_embeddings": 16,
            "rope_scaling": {"rope_type": "dynamic", "factor": 2.0},
        },
        {
            "original_max_position_embeddings": 16,
            "rope_scaling": {"rope_type": "longrope", "factor": 2.0, **FACTORS},
        },
        {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 2.0,
                "original_max_position_embeddings": 16,
                "truncate": False,
            }
        },
    ],
)
def test_what_is_written_is_what_was_read(told):
    found = read(**told)
    written = rope_config(*found.values())
    assert read(**written) == found
    assert (
        written.get("rope_scaling", {}).items() >= told.get("rope_scaling", {}).items()
    )


def test_phi_3_has_a_first_context_of_its_own():
    scaling = {"type": "longrope", "original_max_position_embeddings": 8, **FACTORS}
    told = {"hidden_size": 16, "num_attention_heads": 4, "rope_scaling": scaling}
    told["max_position_embeddings"] = 8192
    found = FAMILIES["phi3"].read(told, "op")["rope_scaling"]
    assert found["original_max_position_embeddings"] == 4096 and found["factor"] == 2
