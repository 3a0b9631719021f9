"""Tiny GGUF files, as llama.cpp's converter makes them, and the scores of them.

Run by Python with ``gguf``, ``torch`` and ``transformers``, this file writes the files
beside it anew, with ``expected.npz``: the scores of ``ids`` of the models before they
were converted. It says how far scores are that ``transformers`` computes of the files.
"""

import importlib.util
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
# The models of `families`, without what such files do not tell.
NAMES = {
    "llama": ("llama", {"mlp_bias": False}),
    "qwen2": ("qwen2", {"use_sliding_window": False}),
    "qwen3": ("qwen3", {}),
    "gemma2": ("gemma2", {"query_pre_attn_scalar": 4}),
    "gemma3": (
        "gemma3_text",
        {"query_pre_attn_scalar": 4, "num_hidden_layers": 6, "layer_types": None},
    ),
    "phi3": ("phi3", {"original_max_position_embeddings": 8}),
}
PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "self_attn.qkv_proj": "attn_qkv",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "mlp.gate_up_proj": "ffn_up",
}
ENDS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def renamed(name, gemma):
    if name in ENDS:
        return ENDS[name]
    _, _, number, *part, kind = name.split(".")
    part = ".".join(part)
    norms = {"post_attention_layernorm": "ffn_norm"}
    if gemma:
        norms = {
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        }
    return f"blk.{number}.{(PARTS | norms)[part]}.{kind}"


def permuted(array, heads):
    """As llama.cpp's converter has the features of queries and keys of Llama."""
    halves = array.reshape(heads, 2, array.shape[0] // heads // 2, *array.shape[1:])
    return halves.swapaxes(1, 2).reshape(array.shape)


def add_positions(writer, config, kind):
    rope = config["rope_parameters"]
    rope = rope.get("full_attention", rope)
    writer.add_rope_freq_base(rope["rope_theta"])
    if kind == "gemma3":
        own = config["rope_parameters"]["sliding_attention"]["rope_theta"]
        writer.add_float32("gemma3.rope.freq_base_swa", own)
    if rope["rope_type"] in ("linear", "yarn"):
        import gguf

        writer.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        writer.add_rope_scaling_factor(rope["factor"])
    if "original_max_position_embeddings" in rope and kind != "llama":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    size = config["hidden_size"] // config["num_attention_heads"]
    size = config.get("head_dim") or size
    if rope["rope_type"] == "longrope":
        scale = config["max_position_embeddings"]
        scale /= rope["original_max_position_embeddings"]
        context = rope["original_max_position_embeddings"]
        attention = np.sqrt(1 + np.log(scale) / np.log(context))
        writer.add_rope_scaling_attn_factors(float(attention))
        for name in ("short", "long"):
            factors = np.array(rope[f"{name}_factor"], "float32")
            writer.add_tensor(f"rope_factors_{name}.weight", factors)
    if rope["rope_type"] == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(rope, size))
    writer.add_rope_dimension_count(int(size * rope.get("partial_rotary_factor", 1)))


def llama3_factors(rope, size):
    waves = 2 * np.pi * rope["rope_theta"] ** (np.arange(0, size, 2) / size)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    context = rope["original_max_position_embeddings"]
    smooth = np.clip((context / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / rope["factor"] + smooth)).astype("float32")


def write(peer, kind):
    import gguf

    config = peer.config.to_dict()
    tensors = {name: value.numpy() for name, value in peer.state_dict().items()}
    if config["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    writer = gguf.GGUFWriter(HERE / f"{kind}.gguf", kind)
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    if config.get("head_dim"):
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if config.get("sliding_window") and kind != "qwen2":
        writer.add_sliding_window(config["sliding_window"])
    if kind == "gemma2":
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    add_positions(writer, config, kind)
    for path, array in tensors.items():
        if kind == "llama" and ".q_proj." in path:
            array = permuted(array, config["num_attention_heads"])
        if kind == "llama" and ".k_proj." in path:
            array = permuted(array, config["num_key_value_heads"])
        if kind.startswith("gemma") and path.endswith("norm.weight"):
            array = array + 1
        writer.add_tensor(renamed(path, kind.startswith("gemma")), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def compare(kind, ids, logits):
    import torch
    import transformers

    peer = transformers.AutoModelForCausalLM.from_pretrained(
        HERE, gguf_file=f"{kind}.gguf", attn_implementation="eager"
    )
    with torch.no_grad():
        found = peer(ids).logits
    print(kind, float(np.abs(found.numpy() - logits).max()))


def families_script():
    """The script that makes the models, whose name is this one's."""
    path = HERE.parent / "families" / "make.py"
    spec = importlib.util.spec_from_file_location("families_make", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main():
    import torch

    families = families_script()

    ids = np.random.default_rng(3).integers(0, families.SMALL["vocab_size"], (3, 13))
    tokens, expected = torch.from_numpy(ids), {"ids": ids.astype("int32")}
    for kind, (name, changes) in NAMES.items():
        title, options = families.CASES[name]
        families.CASES[name] = title, options | changes
        peer = families.peer_of(name)
        with torch.no_grad():
            expected[kind] = peer(tokens).logits.numpy()
        write(peer, kind)
        try:
            compare(kind, tokens, expected[kind])
        except Exception as error:  # what it does not read of them
            print(kind, "is not read by transformers:", str(error)[:200])
    np.savez_compressed(HERE / "expected.npz", **expected)


if __name__ == "__main__":
    main()
