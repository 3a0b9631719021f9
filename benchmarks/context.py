"""A long row of tokens divided over GPUs, beside PyTorch's context parallel.

    python benchmarks/context.py [--tokens 131072] [--devices 2] [--side exburn,torch]

A decoder with the sizes of Llama 3.2 1B trains on one row, by AdamW in bfloat16 beside
weights in float32, with blocks computed again for the gradient; losses are computed in
chunks. Both sides divide positions over the devices, by a ring in balanced order, and
have all weights on each. A line a side: seconds of a step after the first, tokens a
second, peak memory of a device, the loss. Each runs in a process of its own.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

WIDTH, HEADS, KEY_HEADS, SIZE, INNER, LAYERS = 2048, 32, 8, 64, 8192, 16
WORDS, BASE, CHUNK = 128_256, 5e5, 4096


def report(side: str, tokens: int, times: list[float], peak: float, loss: float):
    step = min(times[1:])
    print(
        f"{side}: first {times[0]:.1f} s, then {step:.2f} s, {tokens / step:,.0f} "
        f"tokens/s, peak {peak / 1e9:.1f} GB a device, loss {loss:.4f}",
        flush=True,
    )


def run_exburn(tokens: int, devices: int, steps: int) -> None:
    import jax
    import numpy as np

    import exburn
    from exburn.applications import Llama

    model = Llama(
        WORDS,
        layers=LAYERS,
        width=WIDTH,
        heads=HEADS,
        mlp_width=INNER,
        key_value_heads=KEY_HEADS,
        rope_base=BASE,
        tie_embeddings=True,
        dtype="mixed_bfloat16",
    )
    model.compile(
        exburn.optimizers.AdamW(1e-4), seed=0, mesh={"context": devices}, remat="blocks"
    )
    x = np.random.default_rng(0).integers(0, WORDS, (1, tokens + 1)).astype("int32")
    times, losses = [], []
    for _ in range(steps + 1):
        start = time.perf_counter()
        history = model.fit(x[:, :-1], x[:, 1:], 1, epochs=1, verbose=0).history
        times.append(time.perf_counter() - start)
        losses.append(history["loss"][0])
    stats = [one.memory_stats() or {} for one in jax.local_devices()]
    peak = max(one.get("peak_bytes_in_use", 0) for one in stats)
    report(f"exburn on {devices}", tokens, times, peak, losses[-1])


def make_torch_model():
    import torch
    from torch import nn
    from torch.nn import functional

    def linear(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False)

    def turn(x, cos, sin):
        first, second = x.chunk(2, -1)
        return x * cos + torch.cat((-second, first), -1) * sin

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
            self.query, self.out = linear(WIDTH, WIDTH), linear(WIDTH, WIDTH)
            self.key = linear(WIDTH, KEY_HEADS * SIZE)
            self.value = linear(WIDTH, KEY_HEADS * SIZE)
            self.gate, self.up = linear(WIDTH, INNER), linear(WIDTH, INNER)
            self.down = linear(INNER, WIDTH)

        def forward(self, x, cos, sin):
            y, shape = self.first(x).to(x.dtype), (*x.shape[:2], -1, SIZE)
            made = (part(y) for part in (self.query, self.key, self.value))
            query, key, value = (part.view(shape).transpose(1, 2) for part in made)
            query, key = turn(query, cos, sin), turn(key, cos, sin)
            groups = HEADS // KEY_HEADS
            key, value = (part.repeat_interleave(groups, 1) for part in (key, value))
            # `context_parallel` replaces the function in its module, no copy of it.
            attend = functional.scaled_dot_product_attention
            y = attend(query, key, value, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            y = self.second(x).to(x.dtype)
            return x + self.down(functional.silu(self.gate(y)) * self.up(y))

    with torch.device("cuda"):
        table = nn.Embedding(WORDS, WIDTH)
        nn.init.normal_(table.weight, std=0.02)
        blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        return table, blocks, nn.RMSNorm(WIDTH)


def run_torch(tokens: int, devices: int, steps: int) -> None:
    """One of the processes that torchrun has started."""
    import torch
    import torch.distributed as dist
    from torch.distributed.tensor.experimental import context_parallel
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import cross_entropy
    from torch.utils.checkpoint import checkpoint

    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    mesh = dist.device_mesh.init_device_mesh("cuda", (devices,))
    torch.manual_seed(0)
    table, blocks, last = make_torch_model()
    params = [p for part in (table, blocks, last) for p in part.parameters()]
    optimizer = torch.optim.AdamW(params, 1e-4, fused=True)

    def chunk_loss(x, y):
        return cross_entropy((x @ table.weight.t()).float(), y, reduction="sum")

    def step_loss(x, y, cos, sin):
        hidden = table(x).bfloat16()
        for block in blocks:
            hidden = checkpoint(block, hidden, cos, sin, use_reentrant=False)
        parts = last(hidden).bfloat16()[0].split(CHUNK), y[0].split(CHUNK)
        losses = (
            checkpoint(chunk_loss, *p, use_reentrant=False)
            for p in zip(*parts, strict=True)
        )
        return torch.stack(list(losses)).sum() / tokens

    times = []
    for _ in range(steps + 1):
        generator = torch.Generator("cuda").manual_seed(0)
        size = {"size": (1, tokens + 1), "device": "cuda", "generator": generator}
        row = torch.randint(0, WORDS, **size)
        speeds = 1 / BASE ** (torch.arange(0, SIZE, 2, device="cuda") / SIZE)
        angles = torch.outer(torch.arange(tokens, device="cuda").float(), speeds)
        angles = angles.repeat(1, 2)
        inputs = row[:, :-1].contiguous(), row[:, 1:].contiguous()
        buffers = [*inputs, angles.cos().bfloat16(), angles.sin().bfloat16()]
        dist.barrier()
        torch.cuda.synchronize()
        start = time.perf_counter()
        with (
            context_parallel(
                mesh,
                buffers=buffers,
                buffer_seq_dims=[1, 1, 0, 0],
                no_restore_buffers=set(buffers),
            ),
            sdpa_kernel([SDPBackend.FLASH_ATTENTION]),
            torch.autocast("cuda", torch.bfloat16),
        ):
            loss = step_loss(*buffers)
            loss.backward()
        for param in params:
            dist.all_reduce(param.grad)
        optimizer.step()
        optimizer.zero_grad()
        total = loss.detach()
        dist.all_reduce(total)
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    if dist.get_rank() == 0:
        peak, name = torch.cuda.max_memory_allocated(), f"torch {torch.__version__}"
        report(f"{name} on {devices}", tokens, times, peak, total.item())
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", type=int, default=131_072)
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--steps", type=int, default=3, help="after the first")
    parser.add_argument("--side", default="exburn,torch")
    parser.add_argument("--here", action="store_true", help="in this process")
    args = parser.parse_args()
    if args.here:
        run = {"exburn": run_exburn, "torch": run_torch}[args.side]
        return run(args.tokens, args.devices, args.steps)
    launch = "-m", "torch.distributed.run", "--standalone"
    for side in args.side.split(","):
        before = (
            (*launch, f"--nproc-per-node={args.devices}") if side == "torch" else ()
        )
        sizes = vars(args) | {"side": side}
        options = [
            f"--{name}={sizes[name]}" for name in ("tokens", "devices", "steps", "side")
        ]
        command = sys.executable, *before, __file__, *options, "--here"
        subprocess.run(command, check=True)
    return None


if __name__ == "__main__":
    main()
