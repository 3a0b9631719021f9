"""The parts of long pages: methods of a model by what they are for, names by groups."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["MODEL", "groups_of", "in_parts"]

# What a model has, the most used first. What is in none stands at the end.
MODEL: dict[str, tuple[str, ...]] = {
    "Training": (
        *("compile", "fit", "evaluate", "history", "training", "options"),
        *("stop_training", "stop_evaluating", "load_checkpoint"),
    ),
    "Predicting": ("predict", "generate", "chat", "stop_predicting", "serve"),
    "Saving and exporting": (
        *("save", "save_weights", "load_weights", "export", "to_json", "clone"),
        *("get_config", "from_config", "get_compile_config", "compile_from_config"),
        *("get_state_tree", "set_state_tree", "set_weights"),
    ),
    "Looking into it": (
        *("summary", "info", "layers", "get_layer", "capture", "on_output", "profile"),
        *(
            "explain",
            "influence",
            "uncertainty",
            "curvature",
            "plan",
            "explain_plan",
            "compile_report",
            "trace_counts",
            "sharding_summary",
        ),
    ),
    "Finding settings": ("find_learning_rate", "find_batch_size"),
    "Own steps and losses": (
        *("train_step", "test_step", "predict_step", "compute_loss", "compute_metrics"),
        *("compute_loss_and_updates", "stateless_compute_loss", "own_compute_loss"),
        *("train_on_batch", "test_on_batch", "predict_on_batch"),
        *("reset_metrics", "get_metrics_result", "match_objective"),
    ),
    "Freezing, fine-tuning": (
        *("freeze", "unfreeze", "is_frozen", "frozen_layers"),
        *("add_lora", "merge_lora", "save_lora", "load_lora"),
        *("averaged_weights", "update_batch_statistics"),
    ),
    "Small and precise": (
        *("precision", "quantize", "quantization_summary", "quantization_report"),
        *("compress", "compression_report", "get_quantization_layer_structure"),
    ),
    "Devices and memory": ("to_device", "remat"),
    "Inputs and outputs": (
        *("input", "output", "inputs", "outputs", "input_shape", "output_shape"),
        *("input_names", "output_names", "input_axes", "output_axes"),
    ),
    "What compile was given": (
        *("compiled", "optimizer", "loss", "loss_weights", "metrics", "metrics_names"),
        *("run_eagerly", "jit_compile", "logged_names"),
    ),
}
_GROUP = re.compile(r"^- ([^:`]+): ((?:`+[^`]+`+[, .\s]*)+)", re.MULTILINE)


def groups_of(doc: str) -> dict[str, list[str]]:
    """The groups that a module's docstring lists: a title and names in each item.

    Example:
        >>> groups_of("Layers.\\n\\n- Core: `Dense`,\\n  `Input`.\\n- Merging: `Add`.")
        {'Core': ['Dense', 'Input'], 'Merging': ['Add']}
    """
    groups = _GROUP.findall(doc)
    return {title: re.findall(r"`+([^`]+)`+", names) for title, names in groups}


def in_parts(
    names: Iterable[str], parts: dict[str, Sequence[str]] | dict[str, tuple[str, ...]]
) -> list[tuple[str, list[str]]]:
    """The names by parts, in their order; those of none come last.

    Example:
        >>> in_parts(["b", "a", "c"], {"One": ("a", "b", "x")})
        [('One', ['a', 'b']), ('Others', ['c'])]
    """
    left = dict.fromkeys(names)
    divided = []
    for title, listed in parts.items():
        there = [name for name in listed if name in left]
        for name in there:
            del left[name]
        if there:
            divided.append((title, there))
    return [*divided, ("Others", list(left))] if left else divided
