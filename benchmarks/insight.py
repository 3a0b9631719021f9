"""Private training beside opacus, and differential equations beside deepxde.

``python benchmarks/insight.py privacy`` prints samples a second and the peak of memory
of each model: without privacy, with it, and opacus' (by hooks, and with ghost norms).
Each is measured in a process of its own. ``--peer PYTHON`` is one that has torch and
opacus, by default this one; without them there is no peer.

Batches of torch's lie on the device, and all have the same size; ours are drawn.

``python benchmarks/insight.py equations`` solves deepxde's examples of the heat
equation and of Burgers' with its networks and numbers of points by so many steps of
Adam, and prints the relative error beside the exact solution, and the time.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import subprocess
import sys
import time
from typing import Any

import numpy as np

# Rows of a batch, on a GPU and on a CPU.
BATCHES = {"mlp": (1024, 256), "resnet": (512, 32), "transformer": (256, 16)}
WIDTH, TOKENS, CLASSES = 256, 128, 10
STAGES = 64, 128, 256, 512
CLIP, NOISE = 1.0, 1.0


def data(name: str, rows: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    shapes = {"mlp": (784,), "resnet": (32, 32, 3)}
    if name == "transformer":
        x: Any = rng.integers(0, 1000, (rows, TOKENS)).astype(np.int32)
    else:
        x = rng.normal(size=(rows, *shapes[name])).astype(np.float32)
    return x, rng.integers(0, CLASSES, rows)


# ---------------------------------------------------------------- ours
def our_model(name: str) -> Any:
    import exburn
    from exburn import layers

    def residual(x: Any, y: Any) -> Any:
        return layers.Add()([x, y])

    if name == "mlp":
        hidden = [layers.Dense(2048, "relu") for _ in range(3)]
        first = exburn.Input((784,))
        return exburn.Sequential([first, *hidden, layers.Dense(CLASSES)])
    if name == "resnet":
        first = x = exburn.Input((32, 32, 3))
        x = layers.Conv2D(STAGES[0], 3, padding="same")(x)
        for stage, width in enumerate(STAGES):
            for block in range(2):
                step = 2 if stage and not block else 1
                y = layers.Conv2D(width, 3, strides=step, padding="same")(x)
                y = layers.ReLU()(layers.GroupNormalization(16)(y))
                y = layers.Conv2D(width, 3, padding="same")(y)
                y = layers.GroupNormalization(16)(y)
                x = layers.Conv2D(width, 1, strides=step)(x) if step > 1 else x
                x = layers.ReLU()(residual(x, y))
        x = layers.GlobalAveragePooling2D()(x)
    else:
        first = exburn.Input((TOKENS,), dtype="int32")
        x = layers.Embedding(1000, WIDTH)(first)
        for _ in range(6):
            y = layers.LayerNormalization()(x)
            x = residual(x, layers.MultiHeadAttention(8, WIDTH // 8)(y, y))
            y = layers.Dense(4 * WIDTH, "gelu")(layers.LayerNormalization()(x))
            x = residual(x, layers.Dense(WIDTH)(y))
        x = layers.GlobalAveragePooling1D()(x)
    return exburn.Model(first, layers.Dense(CLASSES)(x))


def measure_ours(name: str, way: str, batch: int, seconds: float) -> dict[str, float]:
    import jax

    import exburn

    model, steps = our_model(name), 16
    privacy = exburn.Privacy(noise=NOISE, delta=1e-5, clip=CLIP)
    loss = exburn.losses.SparseCategoricalCrossentropy(from_logits=True)
    options = {"privacy": privacy} if way == "private" else {}
    model.compile(exburn.optimizers.SGD(0.01), loss, **options)
    x, y = data(name, batch * steps)
    begun = time.perf_counter()
    model.fit(x, y, batch_size=batch, epochs=1, verbose=0)
    first = time.perf_counter() - begun
    took = []
    while sum(took) < seconds or len(took) < 2:
        took.append(_seconds_of_epoch(model, x, y, batch))
    stats = jax.devices()[0].memory_stats() or {}
    peak = stats.get("peak_bytes_in_use", _resident())
    rate = batch * steps / min(took)
    return {"samples/s": rate, "peak MiB": peak / 2**20, "first fit s": first}


def _seconds_of_epoch(model: Any, x: Any, y: Any, batch: int) -> float:
    """Seconds of an epoch's steps, without what the accountant takes at its end."""
    import exburn

    class Clock(exburn.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.begin = time.perf_counter()

        def on_chunk_end(self, step: int, logs: Any = None) -> None:
            self.end = float((logs or {})["loss"]) * 0 + time.perf_counter()

    clock = Clock()
    model.fit(x, y, batch_size=batch, epochs=1, verbose=0, callbacks=[clock])
    return clock.end - clock.begin


def _resident() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---------------------------------------------------------------- opacus
def torch_model(name: str) -> Any:
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Block(nn.Module):
        def __init__(self, before: int, width: int, step: int):
            super().__init__()
            self.first = nn.Conv2d(before, width, 3, step, 1)
            self.second = nn.Conv2d(width, width, 3, 1, 1)
            self.norms = nn.ModuleList([nn.GroupNorm(16, width) for _ in range(2)])
            self.short = (
                nn.Conv2d(before, width, 1, step) if step > 1 else nn.Identity()
            )

        def forward(self, x: Any) -> Any:
            y = F.relu(self.norms[0](self.first(x)))
            return F.relu(self.short(x) + self.norms[1](self.second(y)))

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(WIDTH) for _ in range(2)])
            self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
            self.out = nn.Linear(WIDTH, WIDTH)
            self.wide = nn.Linear(WIDTH, 4 * WIDTH)
            self.narrow = nn.Linear(4 * WIDTH, WIDTH)

        def forward(self, x: Any) -> Any:
            rows, tokens, _ = x.shape
            heads = self.qkv(self.norms[0](x)).reshape(rows, tokens, 3, 8, -1)
            q, k, v = heads.permute(2, 0, 3, 1, 4)
            read = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)
            x = x + self.out(read.reshape(rows, tokens, -1))
            return x + self.narrow(F.gelu(self.wide(self.norms[1](x))))

    class Mean(nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mean(1) if x.ndim == 3 else x.mean((2, 3))

    torch.manual_seed(0)
    if name == "mlp":
        sizes = 784, 2048, 2048, 2048
        pairs = zip(sizes, sizes[1:], strict=False)
        hidden = [m for a, b in pairs for m in (nn.Linear(a, b), nn.ReLU())]
        return nn.Sequential(*hidden, nn.Linear(2048, CLASSES))
    if name == "transformer":
        blocks = [Attention() for _ in range(6)]
        body = nn.Embedding(1000, WIDTH), *blocks, Mean()
        return nn.Sequential(*body, nn.Linear(WIDTH, CLASSES))
    body, before = [nn.Conv2d(3, STAGES[0], 3, 1, 1)], STAGES[0]
    for stage, width in enumerate(STAGES):
        for block in range(2):
            body.append(Block(before, width, 2 if stage and not block else 1))
            before = width
    return nn.Sequential(*body, Mean(), nn.Linear(STAGES[-1], CLASSES))


def measure_opacus(name: str, way: str, batch: int, seconds: float) -> dict[str, float]:
    import torch
    from opacus import GradSampleModule
    from opacus.grad_sample import GradSampleModuleFastGradientClipping
    from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
    from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = True
    model: Any = torch_model(name).to(device).train()
    measure: Any = torch.nn.CrossEntropyLoss()
    plain = torch.optim.SGD(model.parameters(), 0.01)
    optimizer: Any = plain
    options = {"noise_multiplier": NOISE, "max_grad_norm": CLIP}
    options["expected_batch_size"] = batch
    if way == "hooks":
        model = GradSampleModule(model)
        optimizer = DPOptimizer(plain, **options)
    elif way == "ghost":
        model = GradSampleModuleFastGradientClipping(
            model, max_grad_norm=CLIP, use_ghost_clipping=True, loss_reduction="mean"
        )
        optimizer = DPOptimizerFastGradientClipping(plain, **options)
        measure = DPLossFastGradientClipping(model, optimizer, measure, "mean")
    x, y = (torch.from_numpy(v).to(device) for v in data(name, batch * 4))
    x = x.permute(0, 3, 1, 2).contiguous() if name == "resnet" else x
    x = x.long() if name == "transformer" else x

    def step(at: int) -> None:
        rows = slice(at % 4 * batch, (at % 4 + 1) * batch)
        optimizer.zero_grad()
        loss = measure(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()

    def wait() -> float:
        if device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    begun = wait()
    for at in range(3):
        step(at)
    first, done, begin = wait() - begun, 0, wait()
    while wait() - begin < seconds or done < 2:
        step(done)
        done += 1
    took = wait() - begin
    peak = torch.cuda.max_memory_allocated() if device == "cuda" else _resident()
    rate = batch * done / took
    return {"samples/s": rate, "peak MiB": peak / 2**20, "first fit s": first}


# ---------------------------------------------------------------- equations
# Of deepxde's examples: points inside, at the ends, at the start; hidden layers.
EQUATIONS = {"heat": (2540, 80, 160, 3), "burgers": (2540, 80, 160, 3)}
DIFFUSION, VISCOSITY = 0.4, 0.01 / np.pi


def exact(name: str, x: np.ndarray, t: np.ndarray) -> np.ndarray:
    if name == "heat":
        return np.exp(-DIFFUSION * np.pi**2 * t) * np.sin(np.pi * x)
    # By Cole and Hopf, with Gauss' and Hermite's quadrature.
    nodes, weights = np.polynomial.hermite.hermgauss(150)
    places = x[..., None] - np.sqrt(4 * VISCOSITY * t)[..., None] * nodes
    powers = -np.cos(np.pi * places) / (2 * np.pi * VISCOSITY)
    heights = np.exp(powers - powers.max(-1, keepdims=True))
    return (-np.sin(np.pi * places) * heights) @ weights / (heights @ weights)


def grid(name: str) -> tuple[np.ndarray, np.ndarray]:
    low = 0.0 if name == "heat" else -1.0
    x, t = np.meshgrid(np.linspace(low, 1, 64), np.linspace(0.05, 1, 40))
    points = np.stack([x.ravel(), t.ravel()], 1).astype(np.float32)
    return points, exact(name, x, t).ravel()


def solve_ours(name: str, steps: int) -> dict[str, float]:
    from scipy.stats.qmc import Halton  # points as evenly spread as deepxde's

    import exburn
    from exburn import layers, losses, ops

    def residual(model: Any, points: Any) -> Any:
        def u(points: Any) -> Any:
            return model(points)[:, 0]

        value, slope = ops.value_and_grad(u)(points)
        bent = ops.grad(lambda points: ops.grad(u)(points)[:, 0])(points)[:, 0]
        if name == "heat":
            return slope[:, 1] - DIFFUSION * bent
        return slope[:, 1] + value * slope[:, 0] - VISCOSITY * bent

    inside, ends, start, depth = EQUATIONS[name]
    low = 0.0 if name == "heat" else -1.0
    places = np.split(Halton(2, rng=0).random(inside + ends + start), [inside, -start])
    sides = np.arange(ends) % 2
    x = low + (1 - low) * np.r_[places[0][:, 0], sides, places[2][:, 0]]
    t = np.r_[places[0][:, 1], places[1][:, 1], np.zeros(start)]
    first = np.sin(np.pi * x) if name == "heat" else -np.sin(np.pi * x)
    u = np.where(t == 0, first, 0.0)
    # Half the sum of three means, as deepxde's: of ends, of the start, of the residual.
    known = np.repeat([0.0, 1 / ends, 1 / start], [inside, ends, start])
    body = [layers.Dense(20, "tanh") for _ in range(depth)]
    model = exburn.Sequential([exburn.Input((2,)), *body, layers.Dense(1)])
    data = losses.MeanSquaredError(reduction="mean_with_sample_weight")
    loss = losses.Residual(residual, data, weight=0.5)
    model.compile("adam", loss, learning_rate=1e-3, seed=0)
    points = np.stack([x, t], 1).astype(np.float32)
    begun = time.perf_counter()
    options = {"batch_size": len(x), "verbose": 0, "sample_weight": known}
    model.fit(points, u[:, None], epochs=steps, **options)
    took = time.perf_counter() - begun
    where, wanted = grid(name)
    error = model.predict(where, verbose=0)[:, 0] - wanted
    distance = np.linalg.norm(error) / np.linalg.norm(wanted)
    return {"error": float(distance), "seconds": took}


def solve_deepxde(name: str, steps: int) -> dict[str, float]:
    os.environ["DDE_BACKEND"] = "pytorch"
    import deepxde as dde
    import torch

    dde.config.set_random_seed(0)
    inside, ends, start, depth = EQUATIONS[name]
    low, sign = (0, 1) if name == "heat" else (-1, -1)

    def equation(x: Any, u: Any) -> Any:
        slope = dde.grad.jacobian(u, x, i=0, j=1)
        bent = dde.grad.hessian(u, x, i=0, j=0)
        if name == "heat":
            return slope - DIFFUSION * bent
        return slope + u * dde.grad.jacobian(u, x, i=0, j=0) - VISCOSITY * bent

    place, span = dde.geometry.Interval(low, 1), dde.geometry.TimeDomain(0, 1)
    domain = dde.geometry.GeometryXTime(place, span)
    at_ends = dde.icbc.DirichletBC(domain, lambda x: 0, lambda _, on: on)
    at_start = dde.icbc.IC(
        domain, lambda x: sign * np.sin(np.pi * x[:, 0:1]), lambda _, on: on
    )
    points = {"num_domain": inside, "num_boundary": ends, "num_initial": start}
    data = dde.data.TimePDE(domain, equation, [at_ends, at_start], **points)
    network = dde.nn.FNN([2, *[20] * depth, 1], "tanh", "Glorot normal")
    model = dde.Model(data, network)
    model.compile("adam", lr=1e-3)
    begun = time.perf_counter()
    model.train(iterations=steps, display_every=steps, verbose=0)
    took = time.perf_counter() - begun
    where, wanted = grid(name)
    with torch.no_grad():
        error = model.predict(where)[:, 0] - wanted
    return {
        "error": float(np.linalg.norm(error) / np.linalg.norm(wanted)),
        "seconds": took,
    }


# ---------------------------------------------------------------- the table
def in_process(python: str, name: str, side: str, way: str, args: Any) -> Any:
    command = [python, __file__, "one", name, side, way, "--seconds", str(args.seconds)]
    command += ["--batch", str(args.batch)] if args.batch else []
    unclaimed = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | unclaimed, check=False
    )
    if done.returncode:
        return {"error": (done.stderr.strip().splitlines() or ["no text"])[-1][:200]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def privacy(args: Any) -> None:
    ways = [(sys.executable, "ours", way) for way in ("plain", "private")]
    if args.peer != sys.executable or importlib.util.find_spec("opacus"):
        ways += [(args.peer, "opacus", way) for way in ("plain", "hooks", "ghost")]
    print(
        "| model | side | samples/s | peak MiB | first fit s |\n|---|---|---|---|---|"
    )
    for name in args.models:
        for python, side, way in ways:
            result = in_process(python, name, side, way, args)
            cells = [
                f"{v:,.1f}" if isinstance(v, float) else v for v in result.values()
            ]
            print(f"| {name} | {side}, {way} |", " | ".join(cells), "|", flush=True)


def equations(args: Any) -> None:
    print("| equation | side | relative error | s |\n|---|---|---|---|")
    sides = (sys.executable, "ours"), (args.peer, "deepxde")
    for name in EQUATIONS:
        for python, side in sides:
            command = [python, __file__, "solve", name, side, str(args.steps)]
            # More threads of torch than cores that are free take 60 times as long.
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                env=os.environ | {"OMP_NUM_THREADS": "1"},
                check=False,
            )
            if done.returncode:
                print(f"| {name} | {side} |", done.stderr.strip().splitlines()[-1])
                continue
            result = json.loads(done.stdout.strip().splitlines()[-1])
            numbers = f"{result['error']:.4f} | {result['seconds']:.1f} |"
            print(f"| {name} | {side} | {numbers}", flush=True)


def solve(args: Any) -> None:
    by = solve_ours if args.side == "ours" else solve_deepxde
    print(json.dumps({k: float(v) for k, v in by(args.name, args.steps).items()}))


def one(args: Any) -> None:
    measure = measure_ours if args.side == "ours" else measure_opacus
    batch = args.batch or BATCHES[args.model][not _on_gpu(args.side)]
    print(json.dumps(measure(args.model, args.way, batch, args.seconds)))


def _on_gpu(side: str) -> bool:
    if side == "ours":
        import jax

        return jax.default_backend() == "gpu"
    import torch

    return torch.cuda.is_available()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    sections = parser.add_subparsers(required=True)
    section = sections.add_parser("privacy")
    section.add_argument("--models", nargs="+", default=list(BATCHES), choices=BATCHES)
    section.add_argument("--peer", default=sys.executable)
    section.set_defaults(run=privacy)
    inner = sections.add_parser("one")
    inner.add_argument("model", choices=BATCHES)
    inner.add_argument("side", choices=("ours", "opacus"))
    inner.add_argument("way")
    inner.set_defaults(run=one)
    for each in (section, inner):
        each.add_argument("--seconds", type=float, default=3.0)
        each.add_argument("--batch", type=int, default=0)
    section = sections.add_parser("equations")
    section.add_argument("--steps", type=int, default=5000)
    section.add_argument("--peer", default=sys.executable)
    section.set_defaults(run=equations)
    inner = sections.add_parser("solve")
    inner.add_argument("name", choices=EQUATIONS)
    inner.add_argument("side", choices=("ours", "deepxde"))
    inner.add_argument("steps", type=int)
    inner.set_defaults(run=solve)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
