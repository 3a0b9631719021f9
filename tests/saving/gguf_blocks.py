"""Writes ``gguf_blocks.npz``: blocks of each form, and the numbers that gguf reads.

``python tests/saving/gguf_blocks.py``, where the package ``gguf`` is.
"""

from pathlib import Path

import numpy as np

FORMS = ("F32", "F16", "BF16", "Q4_0", "Q8_0", "Q4_K", "Q5_K", "Q6_K")


def main():
    import gguf

    rng, arrays = np.random.default_rng(0), {}
    for name in FORMS:
        kind = gguf.GGMLQuantizationType[name]
        nbytes = gguf.GGML_QUANT_SIZES[kind][1]
        if name.endswith("_K"):  # which gguf reads, and does not write
            blocks = rng.integers(0, 256, (2, nbytes), dtype=np.uint8)
            for place in (208,) if name == "Q6_K" else (0, 2):
                scales = rng.normal(size=(2, 1)).astype("f2")
                blocks[:, place : place + 2] = scales.view("u1")
            data = blocks.reshape(-1)
        else:
            numbers = rng.normal(size=(2, 256)).astype("float32")
            data = gguf.quants.quantize(numbers, kind).reshape(-1).view("u1")
        stored = data.view("f4") if name == "F32" else data[None]
        arrays[name] = data
        numbers = gguf.quants.dequantize(stored, kind)
        arrays[f"{name}/numbers"] = np.asarray(numbers, "float32").reshape(-1)
    np.savez_compressed(Path(__file__).with_suffix(".npz"), **arrays)


if __name__ == "__main__":
    main()
