"""A page for each public name."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

_OWN = "exburn"
_UNCALLED = f"{_OWN}.datasets.adapters"  # what fit finds by itself
_FOREIGN = ("jax", "optax", "flax", "numpy")  # whose functions are public here, too
_PAGES = {
    "jax.numpy": "https://docs.jax.dev/en/latest/_autosummary/jax.numpy.{}.html",
    "jax.nn": "https://docs.jax.dev/en/latest/_autosummary/jax.nn.{}.html",
    "jax.lax": "https://docs.jax.dev/en/latest/_autosummary/jax.lax.{}.html",
}


@dataclasses.dataclass
class Name:
    """A public object.

    Attributes:
        path: Where users find it: ``exburn.layers.Dense``.
        value: The object.
        others: Other public paths to it.
        line: The first sentence of its docstring.
    """

    path: str
    value: Any
    others: list[str]
    line: str

    @property
    def short(self) -> str:
        return self.path.rpartition(".")[2]

    @property
    def page(self) -> str:
        """Its page, from the folder of the reference."""
        return f"{folder_of(self.path.rpartition('.')[0])}/{self.short}.md"


def folder_of(space: str) -> str:
    """The folder of a namespace's pages."""
    return space.removeprefix(_OWN).lstrip(".").replace(".", "/") or _OWN


def write(target: Path) -> dict[str, Name]:
    """Writes a page for each public name, and one for each namespace.

    Returns:
        The names by all of their paths.
    """
    known = public_names()
    for name in {id(n.value): n for n in known.values()}.values():
        place = target / name.page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(page(name), encoding="utf-8")
    for space in sorted({path.rpartition(".")[0] for path in known}):
        folder = target / folder_of(space)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.md").write_text(_index(space, known), encoding="utf-8")
    return known


def public_names() -> dict[str, Name]:
    """All public objects by each of their paths."""
    found: dict[int, list[str]] = {}
    values: dict[str, Any] = {}
    waiting, seen = [_OWN], {_OWN}
    while waiting:
        space = waiting.pop(0)
        module = importlib.import_module(space)
        for name, value in sorted(_members(module).items()):
            if inspect.ismodule(value):
                listed = hasattr(module, "__all__") or hasattr(value, "__all__")
                inside = listed and value.__name__ == f"{space}.{name}" != _UNCALLED
                if inside and value.__name__ not in seen:
                    seen.add(value.__name__)
                    waiting.append(value.__name__)
            elif callable(value):
                path = f"{space}.{name}"
                values[path] = value
                found.setdefault(id(value), []).append(path)
    known: dict[str, Name] = {}
    for paths in found.values():
        home, *_ = sorted(paths, key=_rank)
        doc = (inspect.getdoc(values[home]) or "").split("\n\n")[0]
        for path in paths:
            others = [other for other in paths if other != home]
            known[path] = Name(home, values[home], others, " ".join(doc.split()))
    return known


def _rank(path: str) -> tuple:
    """Namespaces before the root, and of these the shorter one."""
    parts = path.split(".")
    return len(parts) == 2, len(parts), path


def _members(module: ModuleType) -> dict[str, Any]:
    if (names := getattr(module, "__all__", None)) is not None:
        return {name: getattr(module, name) for name in names}
    found = {}
    for name in dir(module):
        value = getattr(module, name)
        home = getattr(value, "__module__", None) or ""
        ours = home.split(".")[0] in (_OWN, *_FOREIGN)
        if not name.startswith("_") and (ours or inspect.ismodule(value)):
            found[name] = value
    if module.__name__ == f"{_OWN}.ops":  # rooms of its own are no namespaces
        found = {n: v for n, v in found.items() if not inspect.ismodule(v)}
    return found


def _index(space: str, known: dict[str, Name]) -> str:
    """The page of a namespace: its names, with a line for each."""
    doc = inspect.getdoc(importlib.import_module(space)) or ""
    up = "../" * (folder_of(space).count("/") + 1)
    rows = [
        f"| [`{path.rpartition('.')[2]}`]({up}{known[path].page}) "
        f"| {known[path].line.replace('|', chr(92) + '|')} |"
        for path in sorted(known, key=str.lower)
        if path.rpartition(".")[0] == space
    ]
    head = doc.split("Example:")[0].strip()
    return "\n".join([f"# {space}", "", head, "", "| Name | |", "|---|---|", *rows, ""])


def page(name: Name) -> str:
    """The Markdown of a name's page."""
    space = name.path.rpartition(".")[0]
    where = f"`{name.path}`"
    if name.others:
        where += ", also " + ", ".join(f"`{path}`" for path in sorted(name.others))
    where += f", in [{space}](index.md)"
    parts = [f"# {name.short}", where, *_text(name)]
    if inspect.isclass(name.value):
        for method, static in _borrowed(name.value):
            parts += [f"## {method}", f"::: {static}"]
    return "\n\n".join(parts) + "\n"


def _text(name: Name) -> Iterator[str]:
    value = name.value
    yield f"```python\n{name.short}{_signature(value)}\n```"
    static = static_path(value)
    if static is not None:
        yield f"::: {static}"
        return
    home, own = getattr(value, "__module__", "") or "", getattr(value, "__name__", "")
    doc = inspect.getdoc(value) or ""
    if home.startswith(_OWN):
        yield from _sections(doc)
        return
    yield doc.split("\n\n")[0]
    for space in _PAGES:
        if getattr(importlib.import_module(space), own, None) is value:
            yield f"It is [`{space}.{own}`]({_PAGES[space].format(own)})."
            return
    yield f"It is `{home}.{own}`."


def static_path(value: Any) -> str | None:
    """The path of an object that a module's source defines, for tools to read."""
    home, own = getattr(value, "__module__", ""), getattr(value, "__qualname__", "")
    if not home or not home.startswith(f"{_OWN}.") or own not in _defined(home):
        return None
    return f"{home}.{own}"


@functools.cache
def _defined(module: str) -> frozenset[str]:
    file = importlib.import_module(module).__file__
    tree = ast.parse(Path(file or "").read_text(encoding="utf-8"))
    kinds = ast.ClassDef, ast.FunctionDef
    return frozenset(node.name for node in tree.body if isinstance(node, kinds))


def _borrowed(cls: type) -> Iterator[tuple[str, str]]:
    """Public methods that are functions of other files: see exburn/models/model.py."""
    for name, value in vars(cls).items():
        if name.startswith("_") or not inspect.isfunction(value):
            continue
        if "." not in value.__qualname__ and (static := static_path(value)):
            yield name, static


def _signature(value: Any) -> str:
    """The parameters with their defaults: types are in the table below."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return "(…)"
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    shown = [str(p) for p in signature.replace(parameters=bare).parameters.values()]
    kinds, only = [p.kind for p in bare], inspect.Parameter.KEYWORD_ONLY
    if only in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(only), "*")
    text = re.sub(r" at 0x[0-9a-f]+", "", ", ".join(shown))
    if len(text) < 70:
        return f"({text})"
    return "(\n" + "".join(f"    {each},\n" for each in shown) + ")"


def _sections(doc: str) -> Iterator[str]:
    """The sections of a docstring whose object no source defines by its name."""
    griffe = importlib.import_module("griffe")
    prepare = importlib.import_module("docs.site.examples").prepare
    for section in griffe.Docstring(prepare(doc)).parse("google", warnings=False):
        if section.kind.value == "text":
            yield section.value
        elif section.kind.value == "examples":
            for kind, text in section.value:
                plain = kind.value == "text"
                yield text if plain else f"```pycon\n{text}\n```"
        elif section.kind.value in ("parameters", "raises", "attributes", "returns"):
            title = section.title or section.kind.value.capitalize()
            rows = [
                f"- `{getattr(item, 'name', None) or item.annotation}`: "
                + " ".join(item.description.split())
                for item in section.value
            ]
            yield f"**{title}**\n\n" + "\n".join(rows)
