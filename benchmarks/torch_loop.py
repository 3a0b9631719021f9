"""The epochs of a model of PyTorch, as its users write them, and when each was over."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def torch_device() -> str:
    """The device to train on, with its quicker products of float32 switched on."""
    import torch

    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = torch.backends.cudnn.benchmark = True
    return "cuda" if torch.cuda.is_available() else "cpu"


def train_in_torch(
    model: Any,
    measure: Callable[[Any, Any], tuple[Any, Any]],
    x: Any,
    y: Any,
    *,
    batch: int,
    epochs: int,
    bfloat16: bool,
    compiled: bool,
    enough: Callable[[list[float]], bool] | None = None,
) -> list[float]:
    """Trains by Adam; returns the time before the first epoch, and after each.

    Args:
        model: The module, on the device of the data.
        measure: Loss and accuracy of outputs and targets.
        x, y: The data.
        batch: Rows of a step; rows that are left over are left out.
        epochs: How many.
        bfloat16: Whether the model computes in that, where autocast lets it.
        compiled: Whether by ``torch.compile``.
        enough: Asked after every epoch, with the times so far, whether to end.
    """
    import torch

    device = x.device.type
    fused = device == "cuda"
    optimizer = torch.optim.Adam(model.parameters(), 1e-3, fused=fused)

    def forward(x: Any, y: Any) -> tuple[Any, Any]:
        with torch.autocast(device, dtype=torch.bfloat16, enabled=bfloat16):
            outputs = model(x)
        if isinstance(outputs, tuple):  # the output, and a loss that the model adds
            return measure(tuple(o.float() for o in outputs), y)
        return measure(outputs.float(), y)

    call = torch.compile(forward) if compiled else forward
    times = [time.perf_counter()]
    for _ in range(epochs):
        order = torch.randperm(len(x), device=device)
        total, hits = torch.zeros(2, device=device).unbind()
        for rows in order[: len(x) // batch * batch].split(batch):
            optimizer.zero_grad(set_to_none=True)
            loss, hit = call(x[rows], y[rows])
            loss.backward()
            optimizer.step()
            total, hits = total + loss.detach(), hits + hit.detach()
        float(total + hits)
        times.append(time.perf_counter())
        if enough is not None and enough(times):
            break
    return times
