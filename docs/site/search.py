"""First hits of the search: guides by their subjects, and methods by their names."""

from __future__ import annotations

import json
from pathlib import Path

# What readers look for, and the pages that answer. An entry of a few words comes before
# pages that say them among many others.
_SUBJECTS: dict[str, tuple[str, ...]] = {
    "anomaly detection": ("notebooks/07_anomalies/",),
    "audio": ("notebooks/25_audio_keywords/",),
    "batch size": ("quickstart/", "finding/"),
    "class imbalance": ("imbalanced/",),
    "confusion matrix": ("runs/", "finding/"),
    "contrastive learning": ("notebooks/24_contrastive/",),
    "custom layer": ("custom_layers/",),
    "custom training loop": ("custom_layers/",),
    "data augmentation": ("notebooks/02_colour_augmentation/", "data/"),
    "deploy": ("server/", "serving/", "export/"),
    "diffusion": ("notebooks/23_diffusion/",),
    "distributed training": ("distribution/",),
    "early stopping": ("callbacks/",),
    "error": ("troubleshooting/", "faq/"),
    "fine-tuning": ("fine_tuning/", "notebooks/11_transfer_by_freezing/"),
    "forecasting": (
        "notebooks/04_timeseries_lstm_gru/",
        "notebooks/30_probabilistic_forecast/",
    ),
    "GAN": ("notebooks/12_gan_two_optimizers/",),
    "GPU": ("install/", "distribution/", "faster/"),
    "graph neural network": ("notebooks/26_graphs/",),
    "hyperparameters": ("sweep/",),
    "image classification": (
        "faq/#image-classification-where-do-i-begin",
        "notebooks/01_mlp_digits/",
        "notebooks/02_colour_augmentation/",
    ),
    "language model": (
        "language_models/",
        "notebooks/31_chats/",
        "notebooks/32_text_server/",
        "notebooks/06_language_model/",
        "text/",
    ),
    "learning rate": ("callbacks/", "finding/"),
    "loss is NaN": ("troubleshooting/",),
    "LoRA": ("lora/",),
    "mixed precision": ("precision/",),
    "multiple GPUs": ("distribution/",),
    "object detection": ("notebooks/22_detection/",),
    "ONNX": ("export/",),
    "out of memory": ("troubleshooting/", "faster/"),
    "overfitting": ("faq/#my-model-is-overfitting", "finding/"),
    "PyTorch": ("migrate_pytorch/",),
    "quantization": ("quantization/",),
    "random seed": ("reproducibility/",),
    "recommender": ("notebooks/28_recommender/",),
    "regression": ("notebooks/03_regression_normalization/",),
    "reinforcement learning": (
        "language_models/#improve-it-by-a-reward",
        "notebooks/27_policy_gradient/",
    ),
    "resume training": ("checkpoints/",),
    "save a model": ("saving/",),
    "segmentation": ("notebooks/21_segmentation/",),
    "slow": ("faster/",),
    "tabular data": (
        "notebooks/14_structured_data/",
        "notebooks/29_tables_and_boosting/",
    ),
    "text classification": ("notebooks/05_text_classification/",),
    "text generation": ("text/", "notebooks/06_language_model/"),
    "time series": ("notebooks/04_timeseries_lstm_gru/",),
    "TPU": ("distribution/",),
    "transfer learning": ("fine_tuning/", "notebooks/11_transfer_by_freezing/"),
}
_MODEL = "reference/models/Model/"
_METHODS = (
    "fit compile evaluate predict generate summary save export serve train_step "
    "save_weights load_weights freeze quantize"
).split()
_LEFT_OUT = "Source"  # sections of code, whose words are those of programs
_LATE = ("decisions", "changelog", "layout", "design", "planning", "contributing")


def improve(file: Path) -> list[str]:
    """Adds the entries to the index of the search.

    Args:
        file: The index: ``search.json``.

    Returns:
        Pages that entries should lead to, and that are not there.
    """
    index = json.loads(file.read_text(encoding="utf-8"))
    items = [item for item in index["items"] if item["title"] != _LEFT_OUT]
    titles = {item["location"]: item["title"] for item in items}
    for item in items:
        if item["location"].startswith(f"{_MODEL}#"):
            item["title"] = f"Model.{item['title']}"
    entries = [
        _entry(page, subject, titles.get(page, ""))
        for subject, pages in _SUBJECTS.items()
        for page in pages
    ]
    entries += [_entry(f"{_MODEL}#{name}", name, f"Model.{name}") for name in _METHODS]
    items.sort(key=lambda item: item["location"].split("/")[0] in _LATE)
    index["items"] = entries + items
    file.write_text(json.dumps(index, ensure_ascii=False), encoding="utf-8")
    return sorted({e["location"] for e in entries} - set(titles))


def _entry(location: str, words: str, title: str) -> dict[str, object]:
    """An item of the index; its path tells readers the page that it leads to."""
    return {
        "location": location,
        "level": 1,
        "title": words,
        "text": words,
        "path": [title],
        "tags": [],
    }
