"""Whether everything that ExBurn stands on works here, and what to do if not."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import os
import platform
import re
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.version import __version__
from exburn.errors import ExBurnError
from exburn.errors.boundary import api_boundary
from exburn.runtime.compilation_cache import nearest
from exburn.runtime.device import device_info, device_of

_REQUIRED = (
    "jax jaxlib flax optax orbax-checkpoint numpy narwhals rich safetensors".split()
)
_OPTIONAL = (
    "matplotlib scikit-learn pandas polars pyarrow grain datasets pillow onnxruntime "
    "torch tensorflow ipykernel"
).split()


@api_boundary
def version() -> str:
    """ExBurn's version.

    Example:
        >>> version().count(".") >= 1
        True
    """
    return __version__


@api_boundary
def configure(device: Any = None) -> str:
    """Chooses the device that new arrays are put on, for the whole process.

    Args:
        device: ``"cpu"``, ``"gpu"``, ``"cuda"``, ``"metal"``, ``"gpu:1"`` or a JAX
            device; None lets JAX choose again: an accelerator if there is one. For a
            block of code there is ``jax.default_device``.

    Returns:
        The device's name, as ``exburn.device_name()``.

    Raises:
        ArgumentError: There is no such device here.

    Example:
        >>> configure("cpu").startswith("CPU")
        True
        >>> _ = configure()

    Source: ExBurn (Elixir), ``ExBurn.configure!``.
    """
    jax.config.update("jax_default_device", device_of(device, "configure"))
    return device_info()["name"]


@api_boundary
def smoke_test() -> float:
    """Compiles and runs a small computation and its gradient on the default device.

    Returns:
        The seconds it took, compiling included.

    Raises:
        ExBurnError: It fails, or the numbers are wrong.

    Example:
        >>> smoke_test() > 0
        True

    Source: ExBurn (Elixir), ``ExBurn.smoke_test``.
    """
    start = time.perf_counter()
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(8, 4)), rng.normal(size=(4, 2))

    def loss(w, x):
        return jnp.sum(jnp.tanh(x @ w) ** 2)

    expected = np.tanh(x @ w)
    gradient = x.T @ (2 * expected * (1 - expected**2))
    try:
        with jax.default_matmul_precision("highest"):
            value, slope = jax.jit(jax.value_and_grad(loss))(
                np.float32(w), np.float32(x)
            )
        value, slope = float(value), np.asarray(slope)
    except Exception as error:  # plug-ins fail with whatever their driver raises
        raise ExBurnError(
            "smoke_test",
            "a small computation failed on the default device",
            {"device": device_info()["name"], "cause": error},
            hint="exburn.doctor() tells what is missing.",
        ) from error
    error = max(abs(value - (expected**2).sum()), np.abs(slope - gradient).max())
    if not error < 1e-3:
        raise ExBurnError(
            "smoke_test",
            "a small computation gave wrong numbers on the default device",
            {"device": device_info()["name"], "largest error": error},
            hint="Try another driver, or exburn.configure('cpu').",
        )
    return time.perf_counter() - start


@api_boundary
def summary() -> str:
    """Version, device and backends of this process, for a bug report.

    ``model.summary()`` is the one of a model.

    Example:
        >>> summary().splitlines()[0].startswith("ExBurn")
        True

    Source: ExBurn (Elixir), ``ExBurn.summary``.
    """
    info = device_info()
    lines = {
        "device": info["name"],
        "GPU": "yes" if info["gpu_available"] else "no",
        "backends": ", ".join(info["available_backends"]) or "none",
        "JAX": f"{jax.__version__}, Python {platform.python_version()}",
        "system": f"{platform.system()} {platform.machine()}",
    }
    head = f"ExBurn {version()}"
    return "\n".join([head, *(f"  {key + ':':10}{v}" for key, v in lines.items())])


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that `doctor` looked at.

    Attributes:
        name: What was looked at.
        state: ``"ok"``, ``"note"`` or ``"broken"``.
        found: What was found.
        advice: What to do, or an empty string.
    """

    name: str
    state: str
    found: str
    advice: str = ""


@dataclasses.dataclass(frozen=True)
class DoctorReport:
    """What `doctor` found; printing it shows a table.

    Attributes:
        checks: In the order in which things depend on each other.
    """

    checks: tuple[Check, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is broken."""
        return all(check.state != "broken" for check in self.checks)

    def __str__(self) -> str:
        marks = {"ok": "✓", "note": "·", "broken": "✗"}
        width = max(len(check.name) for check in self.checks)
        lines = []
        for check in self.checks:
            lines.append(f"{marks[check.state]} {check.name:{width}}  {check.found}")
            if check.advice:
                lines.append(f"  {'':{width}}  → {check.advice}")
        return "\n".join(lines)

    __repr__ = __str__


@api_boundary
def doctor() -> DoctorReport:
    """Looks at versions, devices, folders and optional packages; never raises.

    Returns:
        A `DoctorReport`; ``print(exburn.doctor())`` shows it.

    Example:
        >>> report = doctor()
        >>> [check.name for check in report.checks][:2]
        ['ExBurn', 'Python']
    """
    checks = [
        Check("ExBurn", "ok", version()),
        Check("Python", "ok", platform.python_version()),
    ]
    checks += [_package(name) for name in _REQUIRED]
    info = device_info()
    state = "broken" if info["device"] == "none" else "ok"
    checks.append(Check("device", state, info["name"]))
    checks += [Check("note", "note", "", note) for note in info["notes"]]
    try:
        seconds = smoke_test()
        checks.append(Check("computing", "ok", f"correct, {seconds:.1f} s"))
    except ExBurnError as error:
        checks.append(
            Check("computing", "broken", error.reason, str(error.details["cause"]))
            if "cause" in error.details
            else Check("computing", "broken", error.reason, error.hint or "")
        )
    checks.append(_folder())
    installed = [name for name in _OPTIONAL if _version_of(name)]
    checks.append(Check("optional", "ok", ", ".join(installed) or "none installed"))
    return DoctorReport(tuple(checks))


def _package(name: str) -> Check:
    """A required package, in the version that ExBurn's metadata ask for."""
    version = _version_of(name)
    least = next(
        (
            match[1]
            for line in _requirements()
            if (match := re.match(rf"{re.escape(name)}>=([\d.]+)$", line))
        ),
        None,
    )
    if version is None:
        return Check(name, "broken", "not installed", f"pip install {name}")
    if least is not None and _numbers(version) < _numbers(least):
        requirement = f"{name}>={least}"
        return Check(
            name, "broken", f"{version} < {least}", f'pip install "{requirement}"'
        )
    return Check(name, "ok", version)


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires("exburn") or []
    except importlib.metadata.PackageNotFoundError:  # a checkout on the path
        return []


def _version_of(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _folder() -> Check:
    """The cache of data sets: whether it, or the folder above it, can be written."""
    chosen = os.environ.get("EXBURN_CACHE")
    folder = Path(os.path.expanduser(chosen or "~/.cache/exburn"))
    has_home = str(folder)[0] != "~"  # there may be no home
    if has_home and os.access(nearest(folder), os.W_OK):
        return Check("cache", "ok", str(folder))
    return Check(
        "cache",
        "note",
        f"{folder} cannot be written",
        "Data sets cannot be kept: set EXBURN_CACHE to another folder.",
    )
