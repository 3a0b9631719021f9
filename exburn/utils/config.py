"""Named values that a program is set up with."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import Any

from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods


@guard_methods
class Config:
    """A dict whose entries are attributes, too, and which can be frozen.

    Args:
        **kwargs: Entries.

    Raises:
        ArgumentError: An entry is changed while it is frozen.

    Example:
        >>> config = Config(learning_rate=0.1)
        >>> config.momentum = 0.9
        >>> config["momentum"], config.to_json()
        (0.9, '{"learning_rate": 0.1, "momentum": 0.9}')
        >>> config.freeze()
        >>> config.seed = 1
        Traceback (most recent call last):
        exburn.errors.ArgumentError: Config: it is frozen, so 'seed' cannot be changed
          → config.unfreeze() lets it.

    Source: ``keras.utils.Config``.
    """

    _config: dict[str, Any]
    _frozen: bool

    def __init__(self, **kwargs: Any):
        object.__setattr__(self, "_config", kwargs)
        object.__setattr__(self, "_frozen", False)

    @property
    def frozen(self) -> bool:
        """Whether entries cannot be changed."""
        return self._frozen

    def freeze(self) -> None:
        """Keeps all entries as they are from now on."""
        object.__setattr__(self, "_frozen", True)

    def unfreeze(self) -> None:
        """Lets entries be changed again."""
        object.__setattr__(self, "_frozen", False)

    def as_dict(self) -> dict[str, Any]:
        """A dict with the entries."""
        return dict(self._config)

    def to_json(self) -> str:
        """The entries as JSON."""
        return json.dumps(self._config)

    def keys(self):
        return self._config.keys()

    def values(self):
        return self._config.values()

    def items(self):
        return self._config.items()

    def get(self, keyname: str, value: Any = None) -> Any:
        """An entry, or ``value`` if there is none of this name."""
        return self._config.get(keyname, value)

    def pop(self, *args: Any) -> Any:
        """Takes an entry out, as ``dict.pop``."""
        return self._changing(args[0] if args else "").pop(*args)

    def update(self, *args: Any, **kwargs: Any) -> None:
        """Sets entries, as ``dict.update``."""
        self._changing(", ".join({**dict(*args), **kwargs})).update(*args, **kwargs)

    def _changing(self, name: str) -> dict[str, Any]:
        if self._frozen:
            raise ArgumentError(
                "Config",
                f"it is frozen, so {name!r} cannot be changed",
                hint="config.unfreeze() lets it.",
            )
        return self._config

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(type(self), name):
            raise ArgumentError(
                "Config",
                f"{name!r} is a method of Config, so it cannot be an attribute",
                hint=f"config[{name!r}] = … makes an entry of this name.",
            )
        self._changing(name)[name] = value

    def __delattr__(self, name: str) -> None:
        del self[name]

    def __getattr__(self, name: str) -> Any:
        entries = vars(self).get("_config", {})  # a copy being made has none yet
        if name in entries:
            return entries[name]
        near = difflib.get_close_matches(name, entries, n=1, cutoff=0.7)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise AttributeError(f"there is no entry {name!r}{hint}", name=name, obj=self)

    def __setitem__(self, key: str, item: Any) -> None:
        self._changing(key)[key] = item

    def __getitem__(self, key: str) -> Any:
        return self._config[key]

    def __delitem__(self, key: str) -> None:
        del self._changing(key)[key]

    def __contains__(self, item: object) -> bool:
        return item in self._config

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._config))

    def __len__(self) -> int:
        return len(self._config)

    def __repr__(self) -> str:
        return f"<Config {self._config}>"
