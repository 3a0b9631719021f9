"""Servers of texts by others, and the folder of random weights that they serve.

It holds a Llama of ``transformers`` with a tokenizer of words, and for llama.cpp the
same weights as GGUF.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import socket
import sys
import threading
import time
from pathlib import Path
from typing import Any

GGUF = "model.gguf"


def write_folder(folder: Path, model: Any, tokenizer: dict[str, Any]) -> None:
    """Writes a model of ``transformers``, in which no token ends a text."""
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    model.config.bos_token_id = model.generation_config.bos_token_id = None
    model.generation_config.do_sample = False
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    config: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
    config["clean_up_tokenization_spaces"] = False
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_gguf(file: Path, model: Any, tokenizer: dict[str, Any]) -> None:
    """The same weights for llama.cpp, which takes token numbers as prompts."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(file, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    size = config.hidden_size // config.num_attention_heads
    writer.add_rope_dimension_count(size)
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    words = tokenizer["model"]["vocab"]
    writer.add_token_list(sorted(words, key=words.__getitem__))
    writer.add_token_types([gguf.TokenType.NORMAL] * config.vocab_size)
    writer.add_token_merges(["Ġ w"])
    writer.add_add_bos_token(False)
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight":  # the table of tokens
            continue
        array = tensor.float().cpu().numpy()
        if count := heads.get(name.split(".")[-2]):  # pairs side by side, for RoPE
            parts = array.reshape(count, 2, -1, array.shape[1])
            array = parts.swapaxes(1, 2).reshape(array.shape)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight",)), array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def serve_transformers(options: argparse.Namespace) -> None:
    """``transformers serve`` with continuous batching."""
    (command,) = importlib.metadata.entry_points(
        group="console_scripts", name="transformers"
    )
    port = free_port()
    sys.argv = ["transformers", "serve", "--port", str(port), "--host", "127.0.0.1"]
    sys.argv += ["--continuous-batching", "--log-level", "error"]
    tell_when_listening(port)
    command.load()()


def serve_llama_cpp(options: argparse.Namespace) -> None:
    """llama.cpp's own server, by the package `xllamacpp`."""
    import xllamacpp

    clients = int(options.clients)
    params: Any = xllamacpp.CommonParams()
    params.model.path = str(options.folder / GGUF)
    params.n_parallel = clients
    params.n_ctx = clients * (-(-(options.prompt + options.tokens + 8) // 256) * 256)
    params.cache_prompt = False
    params.port = free_port()
    threads = len(os.sched_getaffinity(0))
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server = xllamacpp.Server(params)
    print("PORT", params.port, flush=True)
    while server is not None:
        time.sleep(60)


def tell_when_listening(port: int) -> None:
    """Prints the port, from a thread, once it takes connections."""

    def wait() -> None:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except OSError:
                time.sleep(0.1)
            else:
                print("PORT", port, flush=True)
                return

    threading.Thread(target=wait, daemon=True).start()


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return place.getsockname()[1]
