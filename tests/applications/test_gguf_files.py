"""Tests of ``exburn.applications.gguf_files``: GGUF files beside ``transformers``."""

from pathlib import Path

import numpy as np
import pytest
from tests.saving.gguf_writer import gguf_bytes

import exburn
from exburn.applications import GPT2, Llama, from_pretrained
from exburn.applications.gguf_files import ARCHITECTURES
from exburn.errors import FileFormatError
from exburn.saving.gguf import GGUFFile

HERE = Path(__file__).parent / "gguf"


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_scores_are_those_of_transformers_before_the_conversion(kind, tmp_path):
    model = from_pretrained(HERE / f"{kind}.gguf")
    with np.load(HERE / "expected.npz") as recorded:
        ids, expected = recorded["ids"], recorded[kind]
    scores = np.asarray(model(ids))
    assert np.abs(scores - expected).max() < 1e-5 * np.abs(expected).max()
    model.save_pretrained(tmp_path)
    again = from_pretrained(tmp_path)
    np.testing.assert_array_equal(again(ids), scores)


def parts(kind="llama"):
    with GGUFFile(HERE / f"{kind}.gguf", "test") as file:
        facts = {key: _plain(value) for key, value in file.facts.items()}
        return facts, {name: file.read(name) for name in file.tensors}


def _plain(value):
    return value.tolist() if isinstance(value, np.ndarray) else value


CHANGES = {
    "llama.new_factor": (2.0, "nothing is known of: llama.new_factor"),
    "other.entry": (2, "nothing is known of: other.entry"),
    "general.architecture": ("mamba", "files of llama, qwen2"),
    "split.count": (3, "each a whole model"),
    "llama.expert_count": (8, "llama.expert_count"),
    "llama.block_count": (2**30, "must be a whole number"),
    "llama.embedding_length": (True, "must say 'hidden_size'"),
    "llama.attention.head_count": (0, "must say 'num_attention_heads'"),
    "llama.attention.key_length": (0, "a head has 0 features"),
    "llama.attention.head_count_kv": ([2, 2], "'num_key_value_heads'"),
    "llama.attention.value_length": (3, "other heads than its keys"),
    "llama.feed_forward_length": (13, "intermediate_size: 13, in the file 12"),
    "llama.rope.scaling.type": ("strange", None),  # the file's own frequencies count
    "llama.rope.dimension_count": (64, "partial_rotary_factor"),
}


@pytest.mark.parametrize("key", CHANGES)
def test_what_may_change_the_computation_is_refused(key, tmp_path):
    value, reason = CHANGES[key]
    facts, tensors = parts()
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(facts | {key: value}, tensors))
    if reason is None:
        assert type(from_pretrained(path)) is Llama
        return
    with pytest.raises(FileFormatError, match=reason):
        from_pretrained(path)


def test_tensors_that_are_missing_or_of_no_use_are_named(tmp_path):
    facts, tensors = parts()
    path = tmp_path / "model.gguf"
    one = tensors.pop("blk.1.attn_q.weight")
    path.write_bytes(gguf_bytes(facts, tensors))
    with pytest.raises(FileFormatError, match="block_1_attention/query/kernel"):
        from_pretrained(path)
    path.write_bytes(gguf_bytes(facts, tensors | {"blk.1.attn_z.weight": one}))
    with pytest.raises(FileFormatError, match="blk.1.attn_z.weight"):
        from_pretrained(path)
    with pytest.raises(FileFormatError, match="does not hold a GPT2"):
        GPT2.from_pretrained(path)


def small_file(kind, exact=True):
    """A Llama whose matrices are stored as Q4_0 or Q8_0.

    Args:
        exact: Whether each block has the number -8, or 127, as quantizers give it.
    """
    rng = np.random.default_rng(0)
    facts = {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.embedding_length": 32,
        "llama.feed_forward_length": 64,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
    }
    sizes = {"attn_q": 32, "attn_k": 16, "attn_v": 16, "attn_output": 32}
    sizes |= {"ffn_gate": 64, "ffn_up": 64}

    def packed(rows, columns):
        count = rows * columns // 32
        values = rng.integers(0, 256, (count, 16 if kind == 2 else 32), np.uint8)
        if kind == 2:  # from -7 to 7, and one -8
            values = np.maximum(values & 15, 1) | np.maximum(values >> 4, 1) << 4
            values[:, 3] &= 240 if exact else 255
        else:  # from -120 to 120, and one 127
            values = np.clip(values.view(np.int8), -120, 120).view(np.uint8)
            values[:, 3] = 127 if exact else 120
        scale = rng.choice([-1, 1], (count, 1)) * rng.uniform(0.01, 0.02, (count, 1))
        parts = scale.astype("<f2").view(np.uint8), values.astype(np.uint8)
        return (rows, columns), kind, np.concatenate(parts, 1).tobytes()

    tensors = {f"blk.0.{k}.weight": packed(n, 32) for k, n in sizes.items()}
    tensors["blk.0.ffn_down.weight"] = packed(32, 64)
    tensors["token_embd.weight"] = packed(9, 32)
    for norm in ("blk.0.attn_norm", "blk.0.ffn_norm", "output_norm"):
        tensors[f"{norm}.weight"] = rng.normal(size=32)
    return gguf_bytes(facts, tensors)


IDS = np.array([[1, 2, 3, 4]])


@pytest.mark.parametrize("kind", [2, 8])
def test_blocks_of_few_bits_are_read_as_numbers(kind, tmp_path):
    path, exact = tmp_path / "small.gguf", tmp_path / "exact.gguf"
    path.write_bytes(small_file(kind))
    with GGUFFile(path, "test") as file:
        facts = {key: _plain(value) for key, value in file.facts.items()}
        arrays = {name: file.read(name) for name in file.tensors}
    exact.write_bytes(gguf_bytes(facts, arrays))
    small, whole = from_pretrained(path, dtype="float32"), from_pretrained(exact)
    np.testing.assert_array_equal(small(IDS), whole(IDS))
    assert from_pretrained(path, dtype="bfloat16").compute_dtype == "bfloat16"


@pytest.mark.parametrize(("kind", "form"), [(2, "int4/32"), (8, "gptq/8/32")])
def test_blocks_stay_in_few_bits_with_the_same_values(kind, form, tmp_path):
    path = tmp_path / "small.gguf"
    path.write_bytes(small_file(kind))
    small, whole = from_pretrained(path), from_pretrained(path, dtype="float32")
    summary = small.quantization_summary(verbose=False)
    assert form in summary and "block_0_attention/query" in summary
    np.testing.assert_allclose(small(IDS), whole(IDS), rtol=1e-5, atol=1e-6)
    for name in ("query", "key", "attention_output"):
        one, other = (
            getattr(m.nodes["block_0_attention"], name) for m in (small, whole)
        )
        np.testing.assert_array_equal(one.kernel.numpy(), other.kernel.numpy())
    table, exact = (m.nodes["token_embedding"].embeddings for m in (small, whole))
    np.testing.assert_array_equal(table.numpy(), exact.numpy())
    np.testing.assert_array_equal(
        small.generate([[1, 2], [3]], 5)[0], whole.generate([1, 2], 5)
    )
    small.save(tmp_path / "small.exburn")
    again = exburn.saving.load_model(tmp_path / "small.exburn")
    np.testing.assert_array_equal(again(IDS), small(IDS))
    small.add_lora(2)
    assert any("lora" in weight.path for weight in small.trainable_weights)


def test_what_does_not_stay_in_few_bits_is_said(tmp_path):
    path = tmp_path / "small.gguf"
    for kind, text in ((8, "8 of Q8_0"), (2, "8 of Q4_0")):
        path.write_bytes(small_file(kind, exact=False))
        with pytest.warns(UserWarning, match=f"read as float32: {text}"):
            model = from_pretrained(path)
        np.testing.assert_array_equal(
            model(IDS), from_pretrained(path, dtype="float32")(IDS)
        )
