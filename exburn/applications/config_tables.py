"""What entries of ``transformers``' configuration files mean, for all families.

A family's table is one of these with its own entries: ``TRANSFORMER.derive([…])``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from exburn import activations
from exburn.errors import FileFormatError
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights.entries import (
    Field,
    Kind,
    Misfit,
    Table,
    choice,
    nullable,
    whole,
)

__all__ = [
    "ACTIVATION",
    "ACTIVATIONS",
    "ENCODER",
    "TRANSFORMER",
    "activation_name",
    "class_of",
    "label_arguments",
    "label_entries",
    "labels",
]


# The names of transformers' activations, of which several are one function, and what
# they are here. Its leaky_relu has another slope than Keras'.
ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_python_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_accurate": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "hardswish": "hard_silu",
    "linear": "linear",
    "mish": "mish",
    "relu": "relu",
    "relu2": "squared_relu",
    "relu6": "relu6",
    "sigmoid": "sigmoid",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}
ACTIVATION = choice(ACTIVATIONS)


def activation_name(value: Any, *, tanh: str = "gelu_pytorch_tanh") -> str:
    """What such a file calls an activation.

    Args:
        value: A name, or a function.
        tanh: Its name for ``gelu_tanh``.

    Example:
        >>> activation_name("squared_relu"), activation_name("gelu_tanh")
        ('relu2', 'gelu_pytorch_tanh')
    """
    own = activations.serialize(activations.get(value))
    if own == "gelu_tanh":
        return tanh
    return next(
        (name for name, function in ACTIVATIONS.items() if function == own), str(own)
    )


def class_of(*names: str) -> Kind:
    """The class of transformers in ``architectures``, which has one at most.

    Args:
        names: Those whose network and head are known here.
    """

    def read(value: Any) -> str | None:
        if value is None or value == []:
            return None
        if not isinstance(value, list) or len(value) > 1 or value[0] not in names:
            raise Misfit(f"a list of one of {', '.join(map(repr, names))}")
        return value[0]

    return read


# Without effect on what a model computes: the form of what PyTorch returns, first
# weights, names of tokens and of tasks, where the file comes from. `dtype` is said by
# the weights themselves. `auto_map` names code, which is never run.
_HARMLESS = """
    _attn_implementation _attn_implementation_autoset attn_implementation
    _commit_hash _name_or_path
    auto_map bos_token_id chunk_size_feed_forward dtype finetuning_task
    gradient_checkpointing initializer_factor initializer_range language license
    model_type output_attentions output_hidden_states output_past pad_token_id prefix
    problem_type return_dict return_dict_in_generate sep_token_id task_specific_params
    tokenizer_class torch_dtype torchscript transformers.js_config
    transformers_version unk_token_id unsloth_fixed unsloth_version use_bfloat16
    use_cache use_return_dict
""".split()

TRANSFORMER = Table(
    CONFIG,
    [],
    only={
        "add_cross_attention": (False,),
        "cross_attention_hidden_size": (),
        "decoder_start_token_id": (),
        "is_encoder_decoder": (False,),
        "pruned_heads": ({},),
        "tie_encoder_decoder": (False,),
    },
    harmless=_HARMLESS,
)


def labels(value: Any) -> tuple[str, ...]:
    """The names of classes: a list of them, or ``{"0": name, …}``.

    Example:
        >>> labels({"0": "cat", "1": "dog"})
        ('cat', 'dog')
    """
    if isinstance(value, Mapping):
        value = [value.get(str(number)) for number in range(len(value))]
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise Misfit("names of classes, numbered from 0")
    return tuple(value)


# Of networks that do not write: what is said of writing is without effect.
ENCODER = TRANSFORMER.derive(
    [
        Field("id2label", "labels", nullable(labels)),
        Field("num_labels", "classes", nullable(whole())),
    ],
    harmless=["eos_token_id", "label2id"],
)


def label_arguments(values: dict[str, Any], op: str) -> dict[str, Any]:
    """``classes`` and ``labels`` of what the two entries say; two classes by default.

    Args:
        values: What a table made of the file, from which both are taken.
        op: The operation named in errors.

    Raises:
        FileFormatError: They contradict each other.
    """
    names, count = values.pop("labels") or None, values.pop("classes")
    if names and count not in (None, len(names)):
        raise FileFormatError(
            op, f"'num_labels' is {count}, and 'id2label' has {len(names)} names"
        )
    classes = len(names) if names else count or 2
    return {"classes": classes, "labels": None if names is None else list(names)}


def label_entries(names: Iterable[str] | None, count: int) -> dict[str, Any]:
    """What ``config.json`` says of so many classes, and of their names."""
    if names is None:
        return {"num_labels": count}
    numbered = list(enumerate(names))
    return {
        "id2label": {str(number): name for number, name in numbered},
        "label2id": {name: number for number, name in numbered},
    }
