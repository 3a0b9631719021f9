"""Names that are imported when they are first used, and the one way up the levels.

Imports point down the levels of docs/layout.md. A method of `Model` or of a layer whose
code lies in a higher room stands in `FUNCTIONS`, and a class of a higher room that a
file may name in `CLASSES`. Each has its signature and its text where it is defined:
type checkers read them by the imports below, ``help()`` and ``inspect`` from the class.
Nothing else in the package names a module above its own.

A package that imports its own names late has its ``__getattr__`` from `importer`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from exburn.core.methods import leave_self_open
from exburn.core.missing_names import missing
from exburn.errors.boundary import api_boundary
from exburn.runtime.gc_pause import starting

#: Functions of higher rooms by their modules. A class lists one as its method.
FUNCTIONS = {
    "exburn.compression.compressing": "compress",
    "exburn.compression.quantization.convert": "pack_new packed_policy quantize",
    "exburn.diagnostics.finding": "find_batch_size find_learning_rate",
    "exburn.diagnostics.profiling": "profile",
    "exburn.insight.curvature": "curvature",
    "exburn.insight.explanations.explaining": "explain",
    "exburn.insight.influence.influence": "influence",
    "exburn.insight.uncertainty.uncertainty": "load_predictor uncertainty",
    "exburn.models.lora": "enable_lora",
    "exburn.serving.http.serve": "serve",
}
#: Classes of higher rooms that a stub (``.pyi``) names, for type checkers alone.
TYPES = {"exburn.models.model": "Model"}
#: Classes that files may name, and whose packages `import exburn` leaves out.
CLASSES = {
    "exburn.applications.bert": "BERT",
    "exburn.applications.convnext": "LayerScale",
    "exburn.applications.decoder": "Decoder",
    "exburn.applications.efficientnet_lite": "EfficientNetLite",
    "exburn.applications.gpt2": "GPT2",
    "exburn.applications.image_network": "ImageNetwork",
    "exburn.applications.inception_resnet_v2": "CustomScaleLayer",
    "exburn.applications.llama": "Llama",
    "exburn.applications.transformer": (
        "ClassToken TextEmbedding TokenPooling TransformerBlock"
    ),
    "exburn.applications.vit": "ViT",
    "exburn.distillation.distiller": "Distiller",
    "exburn.distillation.losses": "FeatureDistillation LogitsDistillation",
    "exburn.distillation.soft_targets": "SoftTargets",
    "exburn.tuning.ensemble": "Ensemble EnsembleMean",
    "exburn.utils.feature_space": "FeatureSpace",
    "exburn.utils.features": "Cross Feature",
}
#: Packages whose classes files name without a prefix.
CATALOGUES = (
    "exburn.constraints",
    "exburn.dtype_policies",
    "exburn.initializers",
    "exburn.layers",
    "exburn.models",
    "exburn.module.seed_generator",
    "exburn.optimizers",
    "exburn.quantizers",
    "exburn.regularizers",
)
#: Packages whose classes and functions files name with a prefix.
PREFIXES = {
    "activations": "exburn.activations",
    "initializers": "exburn.initializers",
    "jax.nn": "exburn.activations",
    "losses": "exburn.losses",
    "metrics": "exburn.metrics",
    "ops": "exburn.ops",
    "transforms": "exburn.compression.masking",
}


def by_name(table: Mapping[str, str]) -> dict[str, str]:
    """The module of each name, for a table of the names of each module.

    Example:
        >>> by_name({"exburn.tuning": "PBT Halving"})
        {'PBT': 'exburn.tuning', 'Halving': 'exburn.tuning'}
    """
    return {name: module for module, names in table.items() for name in names.split()}


_modules_of_classes = by_name(CLASSES)


def import_registered(name: str) -> None:
    """Imports what files may name so, if ExBurn has it; of another name nothing."""
    prefix, _, bare = name.rpartition(">")
    packages: Iterable[str] = CATALOGUES
    if prefix:
        packages = [PREFIXES[prefix]] if prefix in PREFIXES else []
    elif name in _modules_of_classes:
        packages = [_modules_of_classes[name]]
    for package in packages:
        module = importlib.import_module(package)
        if bare in getattr(module, "__all__", ()):
            getattr(module, bare)


def catalogue_names() -> Iterator[str]:
    """The names of the catalogues that files may name, imported or not."""
    for package in CATALOGUES:
        yield from getattr(importlib.import_module(package), "__all__", ())


class LazyFunction:
    """A function of a higher room, imported when it is called or looked at.

    Example:
        >>> class Square:
        ...     side = LazyFunction("math", "sqrt")
        >>> Square.side(16.0)
        4.0
    """

    def __init__(self, module: str, name: str):
        self._module, self._name = module, name

    @functools.cached_property
    def _function(self) -> Any:
        module = importlib.import_module(self._module)
        return leave_self_open(getattr(module, self._name))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        function = self._function
        return function if instance is None else function.__get__(instance, owner)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


if TYPE_CHECKING:  # the same tables, for tools: tests/core/test_lazy_names.py compares
    from exburn.compression.compressing import compress as compress
    from exburn.compression.quantization.convert import pack_new as pack_new
    from exburn.compression.quantization.convert import packed_policy as packed_policy
    from exburn.compression.quantization.convert import quantize as quantize
    from exburn.diagnostics.finding import find_batch_size as find_batch_size
    from exburn.diagnostics.finding import find_learning_rate as find_learning_rate
    from exburn.diagnostics.profiling import profile as profile
    from exburn.insight.curvature import curvature as curvature
    from exburn.insight.explanations.explaining import explain as explain
    from exburn.insight.influence.influence import influence as influence
    from exburn.insight.uncertainty.uncertainty import load_predictor as load_predictor
    from exburn.insight.uncertainty.uncertainty import uncertainty as uncertainty
    from exburn.models.lora import enable_lora as enable_lora
    from exburn.models.model import Model as Model
    from exburn.serving.http.serve import serve as serve
else:
    globals().update(
        {name: LazyFunction(home, name) for name, home in by_name(FUNCTIONS).items()}
    )


def importer(
    package: str,
    names: Mapping[str, str] | None = None,
    submodules: Iterable[str] = (),
    before: Callable[[], object] = lambda: None,
    instead: Mapping[str, str] | None = None,
) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package that imports names when they are first used.

    Args:
        package: The package, ``"exburn.datasets"``.
        names: Modules of the package, or below its level, each with its names; a name
            that is another one there stands as ``"MaxPool2D=MaxPooling2D"``.
        submodules: Modules of the package that are themselves names of it, where
            ``names`` does not have them.
        before: Called before one is imported: refuses where a package is missing.
        instead: What to write instead of names of Keras that the package does not have.
    """
    places = {
        name: (module, original or name)
        for listed, module in by_name(names or {}).items()
        for name, _, original in [listed.partition("=")]
    }
    submodules = frozenset(submodules)

    @api_boundary
    def __getattr__(name: str) -> Any:
        if name not in places and name not in submodules:
            raise missing(package, name, instead)
        before()
        with starting():
            if name not in places:
                return importlib.import_module(f"{package}.{name}")
            module, original = places[name]
            value = getattr(importlib.import_module(module), original)
        vars(sys.modules[package])[name] = value
        return value

    return __getattr__
