"""KerasHub 0.32: small backbones, what they predict, and a step of training.

The second argument is the file that the other run wrote: its weights are taken.
"""

import sys

import keras
import keras_hub
import numpy as np

TINY = {
    "vocabulary_size": 30,
    "num_layers": 2,
    "num_heads": 2,
    "hidden_dim": 8,
    "intermediate_dim": 16,
}
WIDE = {**TINY, "hidden_dim": 16}
SHORT = {**TINY, "max_sequence_length": 12}
GROUPED = {
    "vocabulary_size": 30,
    "num_layers": 2,
    "num_query_heads": 4,
    "num_key_value_heads": 2,
    "hidden_dim": 16,
    "intermediate_dim": 16,
}
WITHOUT_HEADS = {k: v for k, v in SHORT.items() if k != "num_heads"}
FALCON = {k: v for k, v in WIDE.items() if k != "num_heads"} | {
    "num_attention_heads": 4,
    "intermediate_dim": 32,
}
ELECTRA = {k: v for k, v in SHORT.items() if k != "vocabulary_size"} | {
    "vocab_size": 30,
    "embedding_dim": 8,
}
BACKBONES = {
    "Albert": ({**SHORT, "embedding_dim": 8}, "segments"),
    "Bart": (SHORT, "two"),
    "Bert": (SHORT, "segments"),
    "Bloom": ({**WIDE, "intermediate_dim": 32}, "mask"),
    "DebertaV3": ({**SHORT, "bucket_size": 4}, "mask"),
    "DenseNet": (
        {"stackwise_num_repeats": [2, 2], "growth_rate": 4, "image_shape": (32, 32, 3)},
        "image",
    ),
    "DistilBert": (SHORT, "mask"),
    "Electra": (ELECTRA, "segments"),
    "Falcon": (FALCON, "mask"),
    "FNet": (WITHOUT_HEADS, "segments alone"),
    "Gemma": (
        {**GROUPED, "num_key_value_heads": 4, "intermediate_dim": 32, "head_dim": 4},
        "mask",
    ),
    "GPT2": (SHORT, "mask"),
    "GPTNeoX": ({**SHORT, "hidden_dim": 32}, "mask"),
    "Llama": (GROUPED, "mask"),
    "Mistral": (GROUPED, "mask"),
    "Mixtral": ({**GROUPED, "num_experts": 2, "top_k": 1}, "mask"),
    "OPT": (SHORT, "mask"),
    "Phi3": (GROUPED, "mask"),
    "Qwen": (GROUPED, "mask"),
    "Qwen3": ({**GROUPED, "head_dim": 4}, "mask"),
    "Roberta": (SHORT, "mask"),
    "RoformerV2": ({**WIDE, "head_size": 8}, "segments alone"),
    "T5": ({**TINY, "key_value_dim": 4}, "two"),
    "VGG": (
        {
            "stackwise_num_repeats": [1, 1],
            "stackwise_num_filters": [4, 8],
            "image_shape": (32, 32, 3),
        },
        "image",
    ),
    "ViT": (
        {
            "image_shape": (32, 32, 3),
            "patch_size": (4, 4),
            "num_layers": 2,
            "num_heads": 2,
            "hidden_dim": 8,
            "mlp_dim": 16,
        },
        "image",
    ),
    "XLMRoberta": (SHORT, "mask"),
}

rng = np.random.default_rng(0)
ids = rng.integers(1, 30, (3, 8)).astype("int32")
mask = np.ones((3, 8), "int32")
mask[0, 6:] = 0
segments = {"token_ids": ids, "segment_ids": 0 * ids}
DATA = {
    "mask": {"token_ids": ids, "padding_mask": mask},
    "segments": segments | {"padding_mask": mask},
    "segments alone": segments,
    "two": {
        "encoder_token_ids": ids,
        "encoder_padding_mask": mask,
        "decoder_token_ids": ids[:, :5],
        "decoder_padding_mask": mask[:, :5],
    },
    "image": rng.random((3, 32, 32, 3), dtype="float32"),
}
theirs = np.load(sys.argv[2]) if len(sys.argv) > 2 else None
found = {}
for name, (sizes, kind) in BACKBONES.items():
    keras.utils.set_random_seed(0)
    model = getattr(keras_hub.models, f"{name}Backbone")(**sizes)
    weights = model.get_weights()
    if theirs is not None:
        weights = [theirs[f"{name} weight {i}"] for i in range(len(weights))]
        model.set_weights(weights)
    output = model.predict(DATA[kind], verbose=0)
    leaves = [output[k] for k in sorted(output)] if isinstance(output, dict) else output
    for i, leaf in enumerate(leaves if isinstance(leaves, list) else [leaves]):
        found[f"{name} output {i}"] = leaf
    if theirs is None:
        found |= {f"{name} weight {i}": w for i, w in enumerate(weights)}
        continue
    targets = keras.tree.map_structure(np.zeros_like, output)
    model.compile(keras.optimizers.SGD(0.01), "mse")
    losses = model.fit(DATA[kind], targets, epochs=2, batch_size=3, verbose=0).history
    found[f"{name} losses"] = np.array(losses["loss"])
np.savez(sys.argv[1], **found)
