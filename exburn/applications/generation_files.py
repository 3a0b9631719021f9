"""What ``generation_config.json`` of ``transformers`` says, both ways.

Where there is no such file, ``config.json`` may have its entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from exburn.text.defaults import GenerationDefaults
from exburn.weights.entries import (
    Field,
    Table,
    flag,
    nullable,
    one_or_list,
    real,
    whole,
)

__all__ = ["GENERATION", "GENERATION_NAMES", "generation_entries", "generation_of"]

GENERATION = "generation_config.json"
_TOKEN = whole(0, 2**31 - 1)
_COUNT = whole(1, 2**31 - 1)
_TOP_K = 50  # of transformers, where tokens are drawn and nothing is said

_TABLE = Table(
    GENERATION,
    [
        Field("do_sample", "do_sample", nullable(flag, False), False),
        Field("eos_token_id", "end_tokens", one_or_list(_TOKEN)),
        Field("max_length", "max_length", nullable(_COUNT)),
        Field("max_new_tokens", "max_new_tokens", nullable(_COUNT)),
        Field("min_p", "min_p", nullable(real(0, 1), 0.0), 0.0),
        Field(
            "repetition_penalty",
            "repetition_penalty",
            nullable(real(0, above=True), 1.0),
            1.0,
        ),
        Field("temperature", "temperature", nullable(real(0), 1.0), 1.0),
        Field("top_k", "top_k", nullable(whole(0), _TOP_K), _TOP_K),
        Field("top_p", "top_p", nullable(real(0, 1, above=True), 1.0), 1.0),
    ],
    only={
        "bad_words_ids": (),
        "begin_suppress_tokens": (),
        "constraints": (),
        "diversity_penalty": (0.0,),
        "dola_layers": (),
        "encoder_no_repeat_ngram_size": (0,),
        "encoder_repetition_penalty": (1.0,),
        "epsilon_cutoff": (0.0,),
        "eta_cutoff": (0.0,),
        "exponential_decay_length_penalty": (),
        "force_words_ids": (),
        "forced_bos_token_id": (),
        "forced_eos_token_id": (),
        "guidance_scale": (1.0,),
        "max_time": (),
        "min_length": (0,),
        "min_new_tokens": (0,),
        "no_repeat_ngram_size": (0,),
        "num_beam_groups": (1,),
        "num_beams": (1,),
        "num_return_sequences": (1,),
        "penalty_alpha": (0.0,),
        "remove_invalid_values": (False,),
        "renormalize_logits": (False,),
        "sequence_bias": (),
        "stop_strings": (),
        "suppress_tokens": (),
        "token_healing": (False,),
        "top_h": (),
        "typical_p": (1.0,),
        "watermarking_config": (),
    },
    # Of beams, of speculation, which changes no text, of padding, which no row sees,
    # and of the form of what PyTorch returns.
    harmless="""
        _from_model_config assistant_confidence_threshold assistant_early_exit
        assistant_ensemble_weight assistant_lookbehind bos_token_id cache_config
        cache_implementation compile_config continuous_batching_config
        decoder_start_token_id disable_compile early_stopping is_assistant
        length_penalty low_memory max_cache_len max_matching_ngram_size
        num_assistant_tokens num_assistant_tokens_schedule
        output_attentions output_hidden_states output_logits output_scores pad_token_id
        prefill_chunk_size prompt_lookup_num_tokens return_dict_in_generate
        speculation_type target_lookbehind transformers_version use_cache use_mtp
    """.split(),
)
# What counts however the next token is chosen.
_OF_ALL = ("end_tokens", "repetition_penalty", "max_length", "max_new_tokens")
#: Entries of writing that an old ``config.json`` may have.
GENERATION_NAMES = frozenset([*_TABLE.entries, *_TABLE.only, *_TABLE.harmless])


def generation_of(
    config: Mapping[str, Any], files: Mapping[str, Mapping[str, Any]], op: str
) -> dict[str, Any] | None:
    """The defaults of a folder, as the argument ``generation`` of a decoder.

    Args:
        config: What ``config.json`` says.
        files: What the further files say, by their names.
        op: The operation named in errors.

    Raises:
        FileFormatError: It says what is not done here, or nothing is known of it.
    """
    about = files.get(GENERATION)
    if about is None:
        about = {key: config[key] for key in GENERATION_NAMES if key in config}
        values = _TABLE.read(about, op)
    else:
        values = _TABLE.read(about, op)
        if about.get("eos_token_id") is None:
            ends = {"eos_token_id": config.get("eos_token_id")}
            values["end_tokens"] = _TABLE.read(ends, op)["end_tokens"]
    values["end_tokens"] = values["end_tokens"] or None
    if values["temperature"] == 0:  # the likeliest token
        values |= {"temperature": 1.0, "do_sample": False}
    if not values["do_sample"]:  # then the numbers of drawing say nothing
        values = {name: values[name] for name in _OF_ALL}
    return GenerationDefaults.of(values).get_config() or None


def generation_entries(defaults: GenerationDefaults) -> dict[str, Any]:
    """What ``generation_config.json`` says of a model's defaults; ``{}`` for none."""
    config = defaults.get_config()
    entries = {name: config[name] for name in config if name != "end_tokens"}
    if defaults.do_sample:
        entries["top_k"] = defaults.top_k
    ends = config.get("end_tokens")
    if ends:
        entries["eos_token_id"] = ends[0] if len(ends) == 1 else ends
    return entries
