"""What programs may use and the last release had, but is gone or different now.

    python -m release.surface                   # beside the last tag, v1.2.3
    python -m release.surface --against v0.1.0

Exit code 1: CHANGELOG.md names some of that neither under "Changed" nor under "Removed"
above that release. Public are the names that namespaces list (docs/versions.md);
griffe reads both trees, and imports neither.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import griffe

from release import changelog

__all__ = ["Change", "changes", "last_release", "main", "public", "unnamed"]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "exburn"
_NAMES = (ast.Attribute, ast.Name)


@dataclass(frozen=True)
class Change:
    """One thing that is not as it was: its public path, what happened, both values."""

    path: str
    kind: str
    before: str = ""
    now: str = ""

    def __str__(self) -> str:
        values = " -> ".join(value for value in (self.before, self.now) if value)
        return f"{self.path}: {self.kind}{values and f': {values}'}"

    @property
    def names(self) -> set[str]:
        """What an item of the changelog has to name: the object, and its parameter."""
        owner, _, parameter = self.path.removesuffix(")").partition("(")
        owner = owner.removesuffix(".__init__").rpartition(".")[2]
        return {owner, parameter} - {""}


def last_release(repository: Path) -> str | None:
    """The newest tag of a version before this commit."""
    tags = ("tag", "--merged", "HEAD", "--no-contains", "HEAD")
    listing = _git(repository, *tags, "--list", "v[0-9]*", "--sort=-v:refname")
    return listing.splitlines()[0] if listing else None


def changes(repository: Path, tag: str, package: str = PACKAGE) -> list[Change]:
    """How the public names of a tag differ from those of the checkout."""
    options: dict = {"allow_inspection": False, "resolve_external": False}
    options |= {"resolve_aliases": True, "extensions": griffe.Extensions(Bound())}
    then = griffe.load_git(package, ref=tag, repo=repository, **options)
    options |= {"search_paths": [repository], "try_relative_path": False}
    now = griffe.load(package, **options)
    before, after = public(then), public(now)
    rows = {Change(path, "was removed"): None for path in before.keys() - after.keys()}
    home = _homes(after) | _homes({p: o for p, o in before.items() if p in after})
    for path in set(home.values()) & before.keys():
        old, new = before[path], after[path]
        if old is not None and new is not None:
            for broken in griffe.find_breaking_changes(_boxed(old), _boxed(new)):
                rows.update(dict.fromkeys(_told(broken, path, new, home)))
    return sorted(rows, key=str)


class Bound(griffe.Extension):
    """Has griffe see methods that a class takes from modules: ``fit = fitting.fit``."""

    def on_class_members(self, *, node, cls, **others: object) -> None:
        if isinstance(node, ast.ClassDef):
            for name, value in _assigned(node):
                first, _, rest = ast.unparse(value).partition(".")
                member = cls.module.members.get(first)
                if isinstance(member, griffe.Alias) and rest:
                    path = f"{member.target_path}.{rest}"
                elif first in cls.members and not rest:
                    path = f"{cls.path}.{first}"
                else:
                    continue
                cls.set_member(name, griffe.Alias(name, path, parent=cls))


def public(package: griffe.Object | griffe.Alias) -> dict[str, griffe.Object | None]:
    """The public names below a package, by path, and what each stands for.

    That is None where another package has it, into which griffe does not look.
    """
    objects: dict[str, griffe.Object | None] = {}
    waiting, seen = [(package.path, package)], {package.path}
    while waiting:
        path, namespace = waiting.pop()
        for name in _listed(namespace):
            target = _target(namespace.members.get(name))
            if target is None or not target.is_module:
                objects[f"{path}.{name}"] = target
            elif target.path not in seen and target.package is package:
                seen.add(target.path)
                waiting.append((f"{path}.{name}", target))
    return objects


def unnamed(rows: list[Change], text: str, tag: str) -> list[Change]:
    """Those changes that no item of the changelog above the release names."""
    items = changelog.items(text, tag.removeprefix("v"), "Changed", "Removed")
    mentions = [changelog.names_in(item) for item in items]
    return [one for one in rows if not any(one.names <= names for names in mentions)]


def _listed(namespace: griffe.Object | griffe.Alias) -> list[str]:
    """The names of a namespace for others: ``__all__``, or those without ``_``."""
    if namespace.exports is not None:
        return [str(name) for name in namespace.exports]
    own = namespace.path.partition(".")[0]
    return [
        name
        for name, member in namespace.members.items()
        if not name.startswith("_")
        and (
            member.target_path.partition(".")[0] == own
            if isinstance(member, griffe.Alias)
            else not member.is_module or name in namespace.imports
        )
    ]


def _target(member: griffe.Object | griffe.Alias | None) -> griffe.Object | None:
    """What a member stands for, or nothing where another package has it."""
    try:
        return member.final_target if isinstance(member, griffe.Alias) else member
    except (griffe.AliasResolutionError, griffe.CyclicAliasError):
        return None


def _boxed(target: griffe.Object) -> griffe.Module:
    """A module that has nothing but one object, for the comparison of modules."""
    box = griffe.Module("box")
    box.set_member("it", griffe.Alias("it", target))
    return box


def _assigned(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    """The names that a class' body gives values, also several in one line."""
    for statement in node.body:
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            (target,), value = statement.targets, statement.value
            if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                pairs = zip(target.elts, value.elts, strict=True)
            else:
                pairs = iter([(target, value)])
            for name, expression in pairs:
                if isinstance(name, ast.Name) and isinstance(expression, _NAMES):
                    yield name.id, expression


def _homes(names: dict[str, griffe.Object | None]) -> dict[str, str]:
    """The shortest public path of each object, by where it is written."""
    homes: dict[str, str] = {}
    for path, target in names.items():
        if target is None:
            continue
        home = homes.get(target.path)
        if home is None or (len(path), path) < (len(home), home):
            homes[target.path] = path
    return homes


def _told(
    broken: griffe.Breakage,
    public_path: str,
    now: griffe.Object,
    home: dict[str, str],
) -> Iterator[Change]:
    """A finding of griffe, under the public name of what it is about.

    That is the class which has the method, if it is public, and else the one that was
    compared. A base class matters where it is public.
    """
    values = [broken.old_value, broken.new_value]
    if isinstance(broken, griffe.ClassRemovedBaseBreakage):
        old, new = ({_path(base) for base in bases} for bases in values)
        for base in sorted((old - new) & home.keys()):
            yield Change(public_path, f"base class was removed: {home[base]}")
        return
    if isinstance(broken, griffe.ObjectChangedKindBreakage):
        if set(values) == {griffe.Kind.ATTRIBUTE, griffe.Kind.FUNCTION}:
            if "property" not in broken.obj.labels:
                return  # one can be called as the other
    owner, _, name = broken.obj.canonical_path.rpartition(".")
    if _is_inherited(name, now, home):
        return  # it is told of the class that has it
    if broken.obj.canonical_path in home:
        path = home[broken.obj.canonical_path]
    else:
        path = f"{home.get(owner, public_path)}.{name}"
    parameter = next((v for v in values if isinstance(v, griffe.Parameter)), None)
    kind = broken.kind.value[0].lower() + broken.kind.value[1:]
    if parameter is None:
        yield Change(path, kind, *map(_text, values))
        return
    values = [v and v.default for v in values] if "default" in kind else [None, None]
    yield Change(f"{path}({parameter.name})", kind, *map(_text, values))


def _is_inherited(name: str, now: griffe.Object, home: dict[str, str]) -> bool:
    """Has a class a method from another public one?"""
    if not isinstance(now, griffe.Class) or name in now.members:
        return False
    try:
        bases = now.mro()
    except ValueError:  # what they are is not known: those of other packages
        bases = now.resolved_bases
    return any(base.path in home and name in base.members for base in bases)


def _path(base: str | griffe.Expr) -> str:
    return base if isinstance(base, str) else base.canonical_path


def _text(value: object) -> str:
    """A value where it is short: of classes and functions, their names say enough."""
    shown = value is not None and not isinstance(value, griffe.Object | griffe.Alias)
    return str(value) if shown else ""


def _git(repository: Path, *words: str) -> str:
    command = ["git", "-C", str(repository), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _lines(rows: list[Change]) -> Iterator[str]:
    for change in rows:
        yield f"  {change}"


def main(words: list[str] | None = None, repository: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Compares with the last release.")
    parser.add_argument(
        "--against", metavar="TAG", help="another than the last release"
    )
    asked = parser.parse_args(words)
    tag = asked.against or last_release(repository)
    if tag is None:
        shallow = _git(repository, "rev-parse", "--is-shallow-repository").strip()
        note = " here (a shallow clone has no tags)" if shallow == "true" else ""
        print(f"no release yet{note}: nothing to compare with")
        return 0
    broken = changes(repository, tag)
    text = (repository / "CHANGELOG.md").read_text("utf-8")
    missing = unnamed(broken, text, tag)
    print(
        f"{len(broken)} changes that programs of {tag} may notice:",
        *_lines(broken),
        sep="\n",
    )
    if missing:
        print(
            f"{len(missing)} of them are named neither under Changed nor under Removed "
            f"above {tag} in CHANGELOG.md:",
            *_lines(missing),
            sep="\n",
            file=sys.stderr,
        )
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
