"""Ways of preparing images that folders tell, and what other libraries make of them.

``image_values.npz`` holds the arrays. An environment with ``transformers``, ``timm``
and ``torchvision`` writes it anew (recorded with 5.24, 1.0.31 and Pillow 13)::

    python -P tests/applications/image_cases.py
"""

from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parent / "image_values.npz"
SIDE = 16

#: What ``preprocessor_config.json`` says, beside a size of the model's.
TRANSFORMERS = {
    "default": {},
    "no rescaling": {"do_rescale": False},
    "no normalization": {"do_normalize": False},
    "neither": {"do_rescale": False, "do_normalize": False},
    "factor": {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3},
    "colours": {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4]},
    **{f"filter {number}": {"resample": number} for number in range(6)},
    "crop of a square": {
        "size": {"height": 20, "width": 20},
        "do_center_crop": True,
        "crop_size": {"height": SIDE, "width": SIDE},
    },
    "crop of a shorter edge": {
        "size": {"shortest_edge": 18},
        "do_center_crop": True,
        "crop_size": {"height": SIDE, "width": SIDE},
        "resample": 3,
    },
    "crop of a shorter edge that is too short": {
        "size": {"shortest_edge": 12},
        "do_center_crop": True,
        "crop_size": SIDE,
    },
    "crop alone": {"do_resize": False, "do_center_crop": True, "crop_size": SIDE},
    "an old number": {"size": SIDE, "resample": 3},
}

#: What ``pretrained_cfg`` says.
TIMM = {
    "default": {},
    **{
        f"{mode} {share}": {"crop_mode": mode, "crop_pct": share}
        for mode in ("center", "border", "squash")
        for share in (0.6, 0.875, 1.0)
    },
    **{
        name: {"interpolation": name}
        for name in ("nearest", "bilinear", "lanczos", "box", "hamming")
    },
    "colours": {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "crop_pct": 0.9},
}


def images():
    """Photographs of unlike forms, of numbers from 0 to 255."""
    rng = np.random.default_rng(0)
    made = []
    for height, width in ((40, 61), (50, 45), (SIDE, SIDE), (9, 23)):
        rows, columns = np.mgrid[:height, :width]
        noise = rng.integers(0, 80, (height, width, 3))
        wave = 90 * (1 + np.sin(rows / 3 + columns / 5))[..., None]
        made.append(np.clip(wave + noise, 0, 255).astype("uint8"))
    return made


def record():
    """Writes what the libraries make of the images."""
    import torch
    from PIL import Image
    from timm.data import create_transform, resolve_data_config
    from transformers import models

    arrays = {}
    processor = models.vit.image_processing_pil_vit.ViTImageProcessorPil
    for name, told in TRANSFORMERS.items():
        options = {"size": {"height": SIDE, "width": SIDE}} | told
        for number, image in enumerate(images()):
            made = processor(**options)(image, return_tensors="np")["pixel_values"][0]
            arrays[f"transformers/{name}/{number}"] = np.moveaxis(made, 0, -1)
    for name, told in TIMM.items():
        config = resolve_data_config(
            pretrained_cfg={"input_size": (3, SIDE, SIDE), **told}
        )
        transform = create_transform(**config, is_training=False)
        for number, image in enumerate(images()):
            made = transform(Image.fromarray(image))
            assert isinstance(made, torch.Tensor)
            arrays[f"timm/{name}/{number}"] = np.moveaxis(made.numpy(), 0, -1)
    rng = np.random.default_rng(1)
    for number in range(12):
        (height, width), (rows, columns) = rng.integers(2, 40, (2, 2)).tolist()
        noise = rng.integers(0, 2, (height, width, 3), dtype=np.uint8) * 255
        for code, kind in enumerate(
            ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")
        ):
            made = Image.fromarray(noise).resize((columns, rows), code)
            arrays[f"pillow/{kind}/{number}"] = np.asarray(made)
        arrays[f"noise/{number}"] = noise
    np.savez_compressed(GOLDEN, **arrays)


if __name__ == "__main__":
    record()
