"""A page for each public name."""

from __future__ import annotations

import ast
import dataclasses
import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from docs.site.guides import Guides
from docs.site.parts import MODEL, groups_of, in_parts

_OWN = "exburn"
_UNCALLED = f"{_OWN}.datasets.adapters"  # what fit finds by itself
_FOREIGN = ("jax", "optax", "flax", "numpy")  # whose functions are public here, too
SOURCE = "Source"  # the section that the search leaves out
_MOST_LINES = 200
_HEAD = ("| Name | |", "|---|---|")
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


def write(target: Path, root: Path) -> dict[str, Name]:
    """Writes a page for each public name, and one for each namespace.

    Args:
        target: The folder that is written.
        root: The checkout.

    Returns:
        The names by all of their paths.
    """
    names, guides = public_names(), Guides(root)
    for name in {id(n.value): n for n in names.values()}.values():
        place = target / name.page
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(page(name, guides), encoding="utf-8")
    for space in sorted({path.rpartition(".")[0] for path in names}):
        folder = target / folder_of(space)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.md").write_text(_index(space, names), encoding="utf-8")
    return names


def public_names() -> dict[str, Name]:
    """All public objects by each of their paths."""
    paths_by_id: dict[int, list[str]] = {}
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
                paths_by_id.setdefault(id(value), []).append(path)
    names: dict[str, Name] = {}
    for paths in paths_by_id.values():
        home, *_ = sorted(paths, key=_rank)
        doc = (inspect.getdoc(values[home]) or "").split("\n\n")[0]
        for path in paths:
            others = [other for other in paths if other != home]
            names[path] = Name(home, values[home], others, _line(doc))
    return names


def _line(doc: str) -> str:
    """A paragraph as one line of a table, without roles of reStructuredText."""
    return re.sub(r":[a-z]+:`~?([^`]+)`", r"`\1`", " ".join(doc.split()))


def _rank(path: str) -> tuple:
    """Namespaces before the root, and of these the shorter one."""
    parts = path.split(".")
    return len(parts) == 2, len(parts), path


def _members(module: ModuleType) -> dict[str, Any]:
    if (names := getattr(module, "__all__", None)) is not None:
        return {name: getattr(module, name) for name in names}
    members = {}
    for name in dir(module):
        value = getattr(module, name)
        home = getattr(value, "__module__", None) or ""
        ours = home.split(".")[0] in (_OWN, *_FOREIGN)
        if not name.startswith("_") and (ours or inspect.ismodule(value)):
            members[name] = value
    if module.__name__ == f"{_OWN}.ops":  # rooms of its own are no namespaces
        members = {n: v for n, v in members.items() if not inspect.ismodule(v)}
    return members


def _index(space: str, public: dict[str, Name]) -> str:
    """The page of a namespace: its names, with a line for each."""
    doc = _prepared(inspect.getdoc(importlib.import_module(space)) or "")
    up = "../" * (folder_of(space).count("/") + 1)
    rows = {
        path.rpartition(".")[2]: f"| [`{path.rpartition('.')[2]}`]({up}"
        f"{public[path].page}) | {public[path].line.replace('|', chr(92) + '|')} |"
        for path in sorted(public, key=str.lower)
        if path.rpartition(".")[0] == space
    }
    head = doc.split("Examples:")[0].strip()
    groups = groups_of(head)
    lines = [f"# {space}", ""]
    if not groups:
        return "\n".join([*lines, head, "", *_HEAD, *rows.values(), ""])
    # The tables list the same names, each with what it is.
    lines += [re.sub(r"(?ms)^- [^:`\n]+: `.*?\.$\n?", "", head).strip(), ""]
    for title, names in in_parts(rows, groups):
        lines += [f"## {title}", "", *_HEAD, *(rows[name] for name in names), ""]
    return "\n".join(lines)


def page(name: Name, guides: Guides | None = None) -> str:
    """The Markdown of a name's page."""
    space = name.path.rpartition(".")[0]
    where = f"`{name.path}`"
    if name.others:
        where += ", also " + ", ".join(f"`{path}`" for path in sorted(name.others))
    where += f", in [{space}](index.md)"
    parts = [f"# {name.short}", where]
    up = "../" * (name.page.count("/") + 1)
    if guides is not None and (guide_links := guides.of(name.path)):
        links = (f"[{title}]({up}{place})" for title, place in guide_links)
        parts.append(f"Guides: {' · '.join(links)}")
    if name.short == "Model":
        parts += _model(name)
    else:
        parts += _text(name)
        if inspect.isclass(name.value):
            for method, static in _borrowed(name.value):
                parts += [f"## {method}", f"::: {static}"]
    return "\n\n".join([*parts, *_source(name.value)]) + "\n"


def _model(name: Name) -> Iterator[str]:
    """The page of the model: its methods by what they are for, training first."""
    cls, home = name.value, f"{name.value.__module__}.{name.value.__qualname__}"
    yield f"```python\n{name.short}{_signature(cls)}\n```"
    yield f"::: {home}\n    options:\n      members: false"
    paths = {}
    for part in (cls.__base__, cls):  # the network, and the training on top of it
        place = f"{part.__module__}.{part.__qualname__}"
        paths |= {n: f"{place}.{n}" for n in vars(part) if not n.startswith("_")}
    paths |= dict(_borrowed(cls))
    divided = in_parts(paths, MODEL)
    listed = (
        f"- {title}: " + ", ".join(f"[`{n}`](#{n})" for n in names)
        for title, names in divided
    )
    yield "\n".join(listed)
    for title, names in divided:
        yield f"## {title}"
        for method in names:
            yield f"### {method} {{ #{method} }}"
            yield f"::: {paths[method]}\n    options:\n      heading_level: 4"


def _source(value: Any) -> Iterator[str]:
    """The program's text, folded; of a long class where it is."""
    if static_path(value) is None:
        return
    lines, first = inspect.getsourcelines(value)
    stem = Path(inspect.getsourcefile(value) or "").stem
    file = value.__module__.replace(".", "/") + "/__init__" * (stem == "__init__")
    yield f"## {SOURCE}"
    yield f"`{file}.py`, line {first}"
    code = _without_docstrings(textwrap.dedent("".join(lines)))
    if code.count("\n") <= _MOST_LINES:
        yield "<details markdown>\n<summary>Show it</summary>"
        yield f"~~~~python\n{code}\n~~~~"
        yield "</details>"


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
        yield from _sections(doc, value)
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
    for name in vars(cls):
        value = None if name.startswith("_") else getattr(cls, name)
        if not inspect.isfunction(value):
            continue
        if "." not in value.__qualname__ and (static := static_path(value)):
            yield name, static


def _without_docstrings(code: str) -> str:
    """A program's text without what the page tells above it."""
    lines = code.rstrip().splitlines()
    kinds = ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, kinds)]
    for node in sorted(nodes, key=lambda node: -node.lineno):
        if ast.get_docstring(node, clean=False) is not None:
            doc = node.body[0]
            indent = " " * doc.col_offset
            body = [f"{indent}..."] if len(node.body) == 1 else []
            end = doc.end_lineno or doc.lineno
            following = lines[end:]
            while following and not body and not following[0].strip():
                following = following[1:]
            lines = [*lines[: doc.lineno - 1], *body, *following]
    return "\n".join(lines)


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


def _prepared(doc: str) -> str:
    """A docstring as the site reads it; its extension needs griffe, pages may not."""
    return importlib.import_module("docs.site.examples").prepare(doc)


def _types(value: Any) -> dict[str, str]:
    """The types of parameters, as far as a function tells them."""
    try:
        parameters = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return {}
    typed = [p for p in parameters if p.annotation is not p.empty]
    return {p.name: inspect.formatannotation(p.annotation).strip("'") for p in typed}


def _sections(doc: str, value: Any) -> Iterator[str]:
    """The sections of a docstring whose object no source defines by its name."""
    types = _types(value)
    griffe = importlib.import_module("griffe")
    for section in griffe.Docstring(_prepared(doc)).parse("google", warnings=False):
        if section.kind.value == "text":
            yield section.value
        elif section.kind.value == "examples":
            for kind, text in section.value:
                plain = kind.value == "text"
                yield text if plain else f"```pycon\n{text}\n```"
        elif section.kind.value in ("parameters", "raises", "attributes", "returns"):
            title = section.title or section.kind.value.capitalize()
            rows = [
                f"- `{(name := getattr(item, 'name', None)) or item.annotation}`"
                + (f" (`{types[name]}`): " if name in types else ": ")
                + " ".join(item.description.split())
                for item in section.value
            ]
            yield f"**{title}**\n\n" + "\n".join(rows)
