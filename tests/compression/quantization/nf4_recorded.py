"""Writes nf4.npz: matrices as bitsandbytes reads them back from NF4.

python tests/compression/quantization/nf4_recorded.py   # needs bitsandbytes, torch
"""

from pathlib import Path

import numpy as np


def main() -> None:
    import bitsandbytes.functional as F
    import torch

    rng = np.random.default_rng(0)
    weight = rng.standard_normal((24, 128)).astype(np.float32)
    weight[3, :64] = 0
    weight[5] *= 1e-3
    arrays = {"weight": weight}
    for name, double in (("single", False), ("double", True)):
        codes, state = F.quantize_4bit(
            torch.from_numpy(weight),
            quant_type="nf4",
            blocksize=64,
            compress_statistics=double,
        )
        arrays[name] = F.dequantize_4bit(codes, state).numpy()
    arrays["levels"] = state.code.numpy()
    arrays["scale_levels"] = state.state2.code.numpy()
    np.savez_compressed(Path(__file__).with_name("nf4.npz"), **arrays)


if __name__ == "__main__":
    main()
