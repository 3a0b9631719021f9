"""What is given for each output of a model: losses, metrics, targets, weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax

from exburn.errors import ArgumentError, DataError
from exburn.training.objective.arguments import as_list


def names_of(pred_spec: Any) -> list[str]:
    """The outputs' names, where the model has given them none."""
    count = len(jax.tree.leaves(pred_spec))
    if isinstance(pred_spec, Mapping) and len(pred_spec) == count:
        return sorted(pred_spec)
    return ["output"] if count == 1 else [f"output_{i}" for i in range(count)]


def is_nested(form: Any) -> bool:
    """Whether outputs are in containers within a container."""
    parts = form.values() if isinstance(form, Mapping) else form
    return _holds_more(form) and any(map(_holds_more, parts))


def _holds_more(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)


def nested_names(form: Any, layers: list[str] | None) -> list[str]:
    """What logs call the losses of nested outputs, as Keras: their paths.

    Args:
        layers: The layers' names, which take the place of a last number. Without them
            the loss' own name has to.

    Example:
        >>> nested_names({"p": [1, 2], "q": {"r": 3}}, ["a", "b", "c"])
        ['p/a', 'p/b', 'q/r']
        >>> nested_names([1, [2, 3]], None)
        ['', '1/', '1/']
    """
    names = []
    for i, (path, _) in enumerate(jax.tree_util.tree_leaves_with_path(form)):
        words = [jax.tree_util.keystr((key,), simple=True) for key in path]
        if isinstance(path[-1], jax.tree_util.SequenceKey):
            words[-1] = layers[i] if layers else ""
        names.append("/".join(words))
    return names


def flatten_nested(what: str, tree: Any, form: Any) -> list[Any]:
    """What is given for nested outputs, for each of them, in the order of the leaves.

    Args:
        tree: Nested as the outputs are. One for a container is for all that is in it.

    Example:
        >>> form = {"p": [1, 2], "q": [3]}
        >>> flatten_nested("loss", {"q": "mse", "p": ["mae", None]}, form)
        ['mae', None, 'mse']
    """
    if not _holds_more(form):
        return [tree]
    keys = sorted(form) if isinstance(form, Mapping) else range(len(form))
    parts: Any = dict.fromkeys(keys, tree)
    if _holds_more(tree):
        named = isinstance(tree, Mapping)
        parts = dict(tree) if named else dict(enumerate(tree))
        fits = parts.keys() <= {*keys} if named else len(parts) == len(keys)
        if named != isinstance(form, Mapping) or not fits:
            raise DataError(
                what,
                "it must be nested as the outputs are",
                {"received": [*parts], "outputs": [*keys]},
                hint="Use the keys of the outputs, or as many entries as there are.",
            )
    return [
        leaf for key in keys for leaf in flatten_nested(what, parts.get(key), form[key])
    ]


def unused_name(name: str, taken: set[str]) -> str:
    """The name, numbered if it is taken; it is from then on.

    Example:
        >>> taken = {"mae"}
        >>> unused_name("mae", taken), unused_name("mae", taken)
        ('mae_1', 'mae_2')
    """
    free, i = name, 0
    while free in taken:
        i += 1
        free = f"{name}_{i}"
    taken.add(free)
    return free


def entries_by_output(what: str, spec: Any, names: list[str]) -> list[Any]:
    """One entry of an argument of ``compile`` for each output.

    Args:
        spec: One for all outputs, a sequence of as many, or a dict by their names.

    Example:
        >>> entries_by_output("loss_weights", {"b": 2.0}, ["a", "b"])
        [None, 2.0]
    """
    if isinstance(spec, Mapping):
        _check_names(what, spec, names)
        return [spec.get(name) for name in names]
    if not isinstance(spec, list | tuple):
        return [spec] * len(names)
    if len(spec) != len(names):
        raise _other_count(what, spec, names, "entry")
    return list(spec)


def losses_by_output(
    losses: Any, labels: Any, weights: Any, names: list[str]
) -> Iterator[tuple[int, Any, Any, float]]:
    """Each loss, with the number of its output before it, its label and its weight.

    An output may have a list of losses, with one weight or a list of as many.

    Example:
        >>> list(losses_by_output([["x", "y"], "z"], [["X", "Y"], "Z"], 2, ["a", "b"]))
        [(0, 'x', 'X', 2.0), (0, 'y', 'Y', 2.0), (1, 'z', 'Z', 2.0)]
    """
    entries = entries_by_output("loss", losses, names)
    called = entries_by_output("loss", labels, names)
    weighted = entries_by_output("loss_weights", weights, names)
    for i, (loss, label, weight) in enumerate(
        zip(entries, called, weighted, strict=True)
    ):
        own = as_list(loss) or [None]
        scales = as_list(weight) if isinstance(weight, list | tuple) else [weight]
        if len(scales) not in (1, len(own)):
            raise ArgumentError(
                "compile",
                f"loss_weights: {len(scales)} numbers for the {len(own)} losses of "
                f"{names[i]!r}",
                hint="Give one for all of them, or one for each.",
            )
        scales *= len(own) // len(scales)
        for one, name, scale in zip(own, as_list(label) or [None], scales, strict=True):
            yield i, one, name, 1.0 if scale is None else float(scale)


def metrics_by_output(spec: Any, names: list[str]) -> list[list[Any]]:
    """A list of metrics for each output; arguments and errors as above.

    Example:
        >>> metrics_by_output({"b": "mae"}, ["a", "b"])
        [[], ['mae']]
        >>> metrics_by_output(["mae", "mse"], ["a"])
        [['mae', 'mse']]
    """
    if spec is None or spec == []:
        return [[] for _ in names]
    if isinstance(spec, Mapping):
        _check_names("metrics", spec, names)
        return [as_list(spec.get(name)) for name in names]
    spec = as_list(spec)
    if len(names) == 1:
        flat = spec[0] if len(spec) == 1 and isinstance(spec[0], list) else spec
        return [list(flat)]
    if len(spec) != len(names):
        raise _other_count("metrics", spec, names, "list")
    return [as_list(one) for one in spec]


def arrays_by_output(
    op: str, what: str, tree: Any, names: list[str], losses: Any
) -> list[Any]:
    """The array for each output, ``None`` where there is none.

    Args:
        tree: An array, a sequence, or a flat dict by output name; outputs without a
            loss may be left out of a sequence.
    """
    if tree is None:
        return [None] * len(names)
    if not names:
        raise DataError(
            op,
            "the model has no outputs: its `call` returned nothing",
            hint="Let `call` end with `return`.",
        )
    if isinstance(tree, Mapping):
        for name, leaf in tree.items():
            if leaf is not None and not hasattr(leaf, "shape"):
                raise DataError(
                    op,
                    f"{what}[{name!r}] must be one array, received a "
                    f"{type(leaf).__name__}",
                    hint=f"Pass {what} as a flat dict by output name.",
                )
        unknown = set(tree) - set(names)
        if unknown:
            raise DataError(
                op,
                f"{what}: the model has no output {sorted(map(str, unknown))[0]!r}",
                {"outputs": ", ".join(names)},
                hint=f"Use the names of the outputs as keys of {what}.",
            )
        return [tree.get(name) for name in names]
    leaves = list(tree) if isinstance(tree, list | tuple) else [tree]
    for leaf in leaves:
        if leaf is not None and not hasattr(leaf, "shape"):
            raise DataError(
                op,
                f"{what} must hold one array for each output, received a "
                f"{type(leaf).__name__} among them",
                hint=f"Pass {what} as a flat list, or as a dict by output name.",
            )
    if len(leaves) == len(names):
        return leaves
    has_losses = [loss is not None for loss in entries_by_output("loss", losses, names)]
    if len(leaves) == sum(has_losses):
        left = iter(leaves)
        return [next(left) if has_loss else None for has_loss in has_losses]
    raise DataError(
        op,
        f"{what}: {len(leaves)} arrays for {len(names)} outputs",
        {"outputs": ", ".join(names)},
        hint="Pass one array for each output: a list in this order, or a dict.",
    )


def _other_count(what: str, spec: Any, names: list[str], one: str) -> ArgumentError:
    return ArgumentError(
        "compile",
        f"{what}: {len(spec)} entries for {len(names)} outputs",
        {"outputs": ", ".join(names)},
        hint=f"Give a dict by output name, or one {one} for each output.",
    )


def _check_names(what: str, spec: Mapping, names: list[str]) -> None:
    for name in spec:
        if name not in names:
            raise ArgumentError(
                "compile",
                f"{what}: the model has no output {name!r}",
                {"outputs": ", ".join(names)},
                hint="Use the names of the outputs: those of their layers.",
            )
