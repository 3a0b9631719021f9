"""What ``config.json`` says of rotary positions, for all decoders.

A family's table has ``ROPE`` among its entries, and its ``arguments_of`` takes what
they became with ``rope_arguments``::

    TABLE = TRANSFORMER.derive([*ROPE, …])
    values = TABLE.read(config, op)
    rope = rope_arguments(values, op)  # rope_base, rope_scaling, partial_rotary_factor
    RotaryEmbedding(
        rope["rope_base"],
        scaling=rope["rope_scaling"],
        partial_rotary_factor=rope["partial_rotary_factor"],
    )

and its ``config_for`` writes them by ``rope_config``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from exburn.errors import ArgumentError, FileFormatError
from exburn.layers.contract.rotary_scaling import RotaryScaling
from exburn.saving.pretrained_folder import CONFIG
from exburn.weights.entries import (
    Field,
    Kind,
    Misfit,
    Table,
    choice,
    flag,
    list_of,
    nullable,
    real,
    whole,
)

__all__ = ["ROPE", "rope_arguments", "rope_arguments_by_layer", "rope_config"]

_OP = "from_pretrained"
_POSITIONS = "original_max_position_embeddings"
_TYPES = {
    **{kind: kind for kind in ("default", "linear", "dynamic", "llama3", "yarn")},
    "longrope": "longrope",
    "su": "longrope",  # by which the first files of Phi-3 call it
}
_ABOVE_0 = nullable(real(0, above=True))
_NUMBERS = nullable(list_of(real(0, above=True)))
_SCALING = Table(
    CONFIG,
    [
        Field("rope_theta", "rope_theta", _ABOVE_0),
        Field("rope_type", "rope_type", nullable(choice(_TYPES))),
        Field("type", "type", nullable(choice(_TYPES))),
        Field("partial_rotary_factor", "partial_rotary_factor", _ABOVE_0),
        Field("factor", "factor", _ABOVE_0),
        Field(_POSITIONS, _POSITIONS, nullable(whole(2))),
        Field("low_freq_factor", "low_freq_factor", _ABOVE_0),
        Field("high_freq_factor", "high_freq_factor", _ABOVE_0),
        Field("beta_fast", "beta_fast", _ABOVE_0),
        Field("beta_slow", "beta_slow", _ABOVE_0),
        Field("truncate", "truncate", nullable(flag)),
        Field("mscale", "mscale", nullable(real(0))),
        Field("mscale_all_dim", "mscale_all_dim", nullable(real(0))),
        Field("attention_factor", "attention_factor", _ABOVE_0),
        Field("short_factor", "short_factor", _NUMBERS),
        Field("long_factor", "long_factor", _NUMBERS),
    ],
)
_LAYERS = ("full_attention", "sliding_attention")


def _section(path: str) -> Kind:
    """One scaling of positions, or one for each kind of layer."""

    def read(value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise Misfit("an object")
        if value and value.keys() <= set(_LAYERS):
            return {
                layer: None
                if part is None
                else _SCALING.at(f"{path}.{layer}").read(_object(part), _OP)
                for layer, part in value.items()
            }
        return {"": _SCALING.at(path).read(value, _OP)}

    return nullable(read)


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Misfit("an object for each kind of layer")
    return value


ROPE = (
    Field("max_position_embeddings", "max_position_embeddings", nullable(whole())),
    Field(_POSITIONS, _POSITIONS, nullable(whole(2))),
    Field("partial_rotary_factor", "partial_rotary_factor", _ABOVE_0),
    Field("rope_parameters", "rope_parameters", _section("rope_parameters")),
    Field("rope_scaling", "rope_scaling", _section("rope_scaling")),
    Field("rope_theta", "rope_theta", _ABOVE_0),
)


def rope_arguments(
    values: dict[str, Any], op: str, *, base: float = 10000.0
) -> dict[str, Any]:
    """``rope_base``, ``rope_scaling`` and ``partial_rotary_factor`` of a file.

    Args:
        values: What a table with ``ROPE`` made of the file; its entries are taken out.
        op: The operation named in errors.
        base: Of a file that says none.

    Raises:
        FileFormatError: The entries contradict each other, or do not fit the kind.

    Example:
        >>> table = Table("config.json", ROPE)
        >>> told = {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}}
        >>> rope_arguments(table.read(told, "op"), "op")["rope_scaling"]
        {'rope_type': 'linear', 'factor': 2.0}
    """
    return rope_arguments_by_layer(values, op, (), base=base)[""]


def rope_arguments_by_layer(
    values: dict[str, Any],
    op: str,
    layers: Iterable[str] = _LAYERS,
    *,
    base: float = 10000.0,
) -> dict[str, dict[str, Any]]:
    """The arguments of ``rope_arguments`` for each kind of layer.

    Args:
        values, op, base: As of ``rope_arguments``.
        layers: The kinds of layers that the family has, whose entries a file may have.
            Where it has one entry for all of them, each gets that one.

    Raises:
        FileFormatError: As of ``rope_arguments``.
    """
    outer = {field.argument: values.pop(field.argument) for field in ROPE}
    # As transformers does, which takes the older name first.
    sections = outer["rope_scaling"] or outer["rope_parameters"] or {"": {}}
    names = tuple(layers) or ("",)
    unknown = sections.keys() - {"", *names}
    if unknown:
        raise FileFormatError(
            op,
            f"'rope_parameters' in {CONFIG} has entries for kinds of layers that this "
            f"family does not have: {', '.join(sorted(unknown))}",
        )
    return {
        name: _arguments(sections.get(name, sections.get("")) or {}, outer, base, op)
        for name in names
    }


def _arguments(
    section: dict[str, Any], outer: dict[str, Any], base: float, op: str
) -> dict[str, Any]:
    """The arguments of one scaling."""
    section = {key: value for key, value in section.items() if value is not None}
    older = section.pop("type", None)
    kind = section.pop("rope_type", None) or older or "default"
    theta = section.pop("rope_theta", None) or outer["rope_theta"] or base
    share = section.pop("partial_rotary_factor", outer["partial_rotary_factor"])
    if share is not None and share > 1:
        raise FileFormatError(
            op, f"'partial_rotary_factor' in {CONFIG} must be at most 1, not {share}"
        )
    arguments = {
        "rope_base": theta,
        "rope_scaling": None,
        "partial_rotary_factor": 1.0 if share is None else share,
    }
    positions = section.pop(_POSITIONS, None)
    if kind == "default":
        section.pop("factor", None)  # without effect, as in transformers
        if section:
            raise FileFormatError(
                op,
                f"{CONFIG} has entries of positions that their kind, 'default', does "
                f"not take: {', '.join(map(repr, sorted(section)))}",
            )
        return arguments
    longest = outer["max_position_embeddings"]
    if kind == "dynamic":  # whose first context is the longest
        section |= {_POSITIONS: longest}
    elif kind != "linear":
        section |= {_POSITIONS: outer[_POSITIONS] or positions or longest}
    context = section.get(_POSITIONS)
    told = kind == "longrope" or outer[_POSITIONS] or positions
    if "factor" not in section and kind in ("longrope", "yarn") and told:
        section |= {"factor": longest / context if longest and context else None}
    scaling = {"rope_type": kind, **section}
    scaling = {key: value for key, value in scaling.items() if value is not None}
    try:
        RotaryScaling.of(scaling)
    except ArgumentError as error:
        raise FileFormatError(
            op,
            f"{CONFIG} describes no scaling of positions: {error.reason}",
            error.details,
        ) from None
    return arguments | {"rope_scaling": scaling}


def rope_config(
    base: float, scaling: Mapping[str, Any] | None, share: float = 1.0
) -> dict[str, Any]:
    """The entries of ``config.json`` for these arguments, which ``transformers`` reads.

    Args:
        base, scaling, share: ``rope_base``, ``rope_scaling``, and
            ``partial_rotary_factor``.

    Example:
        >>> rope_config(1e4, {"rope_type": "linear", "factor": 2.0})["rope_scaling"]
        {'rope_type': 'linear', 'factor': 2.0}
    """
    entries: dict[str, Any] = {"rope_theta": base}
    if share != 1:
        entries["partial_rotary_factor"] = share
    if scaling is None:
        return entries
    kind, context = scaling["rope_type"], scaling.get(_POSITIONS)
    section = {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in scaling.items()
        if kind != "dynamic" or key != _POSITIONS
    }
    if kind == "dynamic":
        entries["max_position_embeddings"] = context
    elif kind == "longrope":  # Phi-3 reads it outside alone
        entries[_POSITIONS] = context
    return entries | {"rope_scaling": section}
