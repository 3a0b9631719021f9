"""Writes ``rotary_values.npz``: angles of positions as ``transformers`` computes them.

``python tests/layers/attention/rotary_values.py``, where torch and transformers are.
"""

import copy
from pathlib import Path

import numpy as np

FACTORS = [1.0, 1.05, 1.2, 1.3], [1.0, 2.5, 7.0, 30.0]
CASES = {
    "linear": {"factor": 3.0},
    "dynamic": {"factor": 2.5},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 32,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 32},
    "yarn, told all": {
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "beta_fast": 3.0,
        "beta_slow": 0.5,
        "mscale": 0.8,
        "mscale_all_dim": 0.5,
        "truncate": False,
    },
    "yarn, attention": {
        "factor": 4.0,
        "original_max_position_embeddings": 32,
        "attention_factor": 1.5,
    },
    "longrope": {
        "short_factor": FACTORS[0],
        "long_factor": FACTORS[1],
        "original_max_position_embeddings": 32,
        "factor": 4.0,
    },
    "longrope, partial": {
        "short_factor": FACTORS[0][:2],
        "long_factor": FACTORS[1][:2],
        "original_max_position_embeddings": 32,
        "attention_factor": 1.25,
    },
}
LENGTHS = (20, 33, 90)
LONGEST, SIZE, BASE = 32, 8, 500.0


def entries(name):
    """The entries of a case, as of ``rope_parameters``."""
    share = 0.5 if "partial" in name else 1.0
    kind = name.partition(",")[0]
    return {"rope_type": kind, **copy.deepcopy(CASES[name])}, share


def main():
    import torch
    from transformers import LlamaConfig
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    values = {}
    for name in CASES:
        parameters, share = entries(name)
        parameters |= {"rope_theta": BASE, "partial_rotary_factor": share}
        config = LlamaConfig(
            hidden_size=SIZE * 2,
            num_attention_heads=2,
            max_position_embeddings=LONGEST,
            rope_parameters=parameters,
        )
        for length in LENGTHS:
            init = ROPE_INIT_FUNCTIONS[parameters["rope_type"]]
            speeds, factor = init(config, seq_len=torch.tensor(length))
            values[f"{name}/{length}/speeds"] = speeds.numpy()
            values[f"{name}/{length}/factor"] = np.float64(factor)
    np.savez_compressed(Path(__file__).with_suffix(".npz"), **values)


if __name__ == "__main__":
    main()
