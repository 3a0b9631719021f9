"""Training in PyTorch on several devices of one host: a process for each of them.

The processes meet in a file and talk through NCCL, or gloo on CPUs: no network.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch_loop import torch_device, train_in_torch

__all__ = ["train_on_devices"]


def train_on_devices(cell: Any, way: str, devices: int, seconds: float) -> dict:
    """Trains a model on rows of its own for each device, and measures rank 0.

    Args:
        cell: The model, out of `distribution_models.py`.
        way: ``"alone"``, on one device; ``"ddp"``; ``"fsdp"``, fully sharded (FSDP2).
            With ``"-compiled"`` behind it by ``torch.compile``.
        devices: How many.
        seconds: For how long after the first epoch.

    Returns:
        ``times`` before the first epoch and after each, and ``peak`` bytes allocated
        on the fullest device (None on CPUs).
    """
    from torch.multiprocessing.spawn import spawn

    # Interfaces that lead out are not tried.
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        args = (cell, way, devices, seconds, folder)
        if way.startswith("alone"):
            _train(0, *args)
        else:
            spawn(_train, args=args, nprocs=devices)
        return json.loads((Path(folder) / "result.json").read_text())


def _train(
    rank: int, cell: Any, way: str, devices: int, seconds: float, folder: str
) -> None:
    import torch
    from torch import distributed
    from torch.nn import functional as F

    device, alone = torch_device(), way.startswith("alone")
    gpu = device == "cuda"
    if gpu:
        torch.cuda.set_device(rank)
    if not alone:
        distributed.init_process_group(
            "nccl" if gpu else "gloo",
            init_method=f"file://{folder}/meet",
            rank=rank,
            world_size=devices,
            timeout=timedelta(seconds=60),
            device_id=torch.device(device, rank) if gpu else None,
        )
    model = cell.torch_module().to(device)
    bfloat16, sharded = cell.dtype == "bfloat16", way.startswith("fsdp")
    x, y = (torch.from_numpy(part).to(device) for part in cell.data(cell.samples))
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last)
        if not sharded:  # FSDP2 wants weights in their own order
            model = model.to(memory_format=torch.channels_last)
    if x.dtype == torch.int32:
        x = x.long()
    if way.startswith("ddp"):
        ids = [rank] if gpu else None
        wrap: Any = torch.nn.parallel.DistributedDataParallel
        model = wrap(model, device_ids=ids, gradient_as_bucket_view=True)
    elif sharded:
        # Statistics of batch normalization stay float32, so its weights do: there
        # autocast casts, as without FSDP.
        casts = bfloat16 and not any(True for _ in model.buffers())
        _shard(model, cell.parts, casts)
        bfloat16 = bfloat16 and not casts

    def measure(logits: Any, y: Any) -> tuple[Any, Any]:
        if cell.binary:
            hits = ((logits > 0) == (y > 0.5)).float().mean()
            return F.binary_cross_entropy_with_logits(logits, y), hits
        return F.cross_entropy(logits, y), (logits.argmax(1) == y).float().mean()

    def enough(times: list[float]) -> bool:
        """Asks rank 0, so that all processes end with the same epoch."""
        done = torch.tensor(float(_over(times, seconds)), device=device)
        if not alone:
            distributed.broadcast(done, 0)
        return bool(done.item())

    times = train_in_torch(
        *(model, measure, x, y if cell.binary else y.long()),
        batch=cell.batch,
        epochs=10_000,
        bfloat16=bfloat16,
        compiled=way.endswith("-compiled"),
        enough=enough,
    )
    peak = torch.tensor(torch.cuda.max_memory_allocated() if gpu else 0, device=device)
    if not alone:
        distributed.all_reduce(peak, distributed.ReduceOp.MAX)
        distributed.destroy_process_group()
    if rank == 0:
        result = {"times": times, "peak": int(peak) or None}
        (Path(folder) / "result.json").write_text(json.dumps(result))


def _over(times: list[float], seconds: float) -> bool:
    return len(times) > 3 and time.perf_counter() - times[1] > seconds


def _shard(model: Any, parts: tuple[str, ...], casts: bool) -> None:
    """Shards the modules of some classes one by one, and what is left together."""
    import torch
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    shard: Callable[..., Any] = fully_shard
    if casts:
        half, single = torch.bfloat16, torch.float32
        policy = MixedPrecisionPolicy(param_dtype=half, reduce_dtype=single)
    else:
        policy = MixedPrecisionPolicy()
    for part in [m for m in model.modules() if type(m).__name__ in parts]:
        shard(part, mp_policy=policy)
    shard(model, mp_policy=policy)
