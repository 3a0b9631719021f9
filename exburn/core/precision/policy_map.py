"""A policy for each layer, by its path."""

from __future__ import annotations

import re
from collections.abc import Iterator, MutableMapping
from typing import Any

from exburn.core.precision.policies import DTypePolicy, PrecisionPolicy
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods


@guard_methods
class DTypePolicyMap(DTypePolicy, MutableMapping):
    """Policies by paths of layers, or by regular expressions that match whole paths.

    Given as ``dtype`` of a layer or model, it decides for that layer and for those
    inside of it, as soon as their paths are known: when a model is made of them, or
    when their weights get values. Paths begin below the outermost model.

    Args:
        default_policy: The policy where no key matches; that of the process, whenever
            it is asked for, by default.
        policy_map: Policies, or names of them, by key.

    Raises:
        ArgumentError: The default is a map, ``policy_map`` is no dict, a key is set
            twice, or two expressions match the path that is asked for.

    Example:
        >>> policies = DTypePolicyMap("float32", {"encoder/.*": "mixed_bfloat16"})
        >>> policies["encoder/dense"].name, policies["head"].name
        ('mixed_bfloat16', 'float32')

    Source: ``keras.dtype_policies.DTypePolicyMap``.
    """

    def __init__(self, default_policy: Any = None, policy_map: Any = None):
        if isinstance(default_policy, DTypePolicyMap):
            raise ArgumentError("DTypePolicyMap", "the default policy must be no map")
        if policy_map is not None and not isinstance(policy_map, dict):
            raise ArgumentError(
                "DTypePolicyMap", f"policy_map must be a dict, received {policy_map!r}"
            )
        default = None if default_policy is None else PrecisionPolicy.of(default_policy)
        self._default = default
        self._policies: dict[str, DTypePolicy] = {}
        for key, policy in (policy_map or {}).items():
            self[key] = policy

    @property
    def default_policy(self) -> DTypePolicy:
        """The policy where no key matches."""
        return PrecisionPolicy.of(self._default)

    @property
    def name(self) -> str:
        return f"map_{self.default_policy.name}"

    @property
    def plain(self) -> DTypePolicy:
        return self.default_policy.plain

    @property
    def param(self) -> str:
        return self.default_policy.param

    @property
    def compute(self) -> str:
        return self.default_policy.compute

    @property
    def quantization_mode(self) -> str | None:
        return self.default_policy.quantization_mode

    def __getitem__(self, path: str) -> DTypePolicy:
        if path in self._policies:
            return self._policies[path]
        keys = [key for key in self._policies if re.fullmatch(key, path)]
        if len(keys) > 1:
            raise ArgumentError(
                "DTypePolicyMap",
                f"two keys match the path {path!r}, so that its policy is not clear",
                {"keys": ", ".join(keys)},
                hint="Give the path itself as a key.",
            )
        return self._policies[keys[0]] if keys else self.default_policy

    def __setitem__(self, key: str, policy: Any) -> None:
        if key in self._policies:
            raise ArgumentError(
                "DTypePolicyMap",
                f"the key {key!r} has a policy already",
                {"policy": self._policies[key].name},
                hint="Delete it first: del policies[key].",
            )
        self._policies[key] = PrecisionPolicy.of(policy)

    def __delitem__(self, key: str) -> None:
        del self._policies[key]

    def __contains__(self, key: object) -> bool:
        return key in self._policies

    def __iter__(self) -> Iterator[str]:
        return iter(self._policies)

    def __len__(self) -> int:
        return len(self._policies)

    @property
    def identifier(self) -> dict[str, Any]:
        return {"class_name": "DTypePolicyMap", "config": self.get_config()}

    def get_config(self) -> dict[str, Any]:
        return {
            "default_policy": self._default and self._default.identifier,
            "policy_map": {k: v.identifier for k, v in self._policies.items()},
        }

    @classmethod
    def from_config(
        cls, config: dict[str, Any], custom_objects: Any = None
    ) -> DTypePolicyMap:
        return cls(**config)

    def _key(self) -> tuple:
        return (DTypePolicyMap, self._default, tuple(self._policies.items()))

    __eq__, __hash__ = DTypePolicy.__eq__, DTypePolicy.__hash__

    def __repr__(self) -> str:
        policies = {key: policy.name for key, policy in self._policies.items()}
        return f"<DTypePolicyMap {policies}, otherwise {self.default_policy.name!r}>"
