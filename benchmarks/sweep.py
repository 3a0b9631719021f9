"""Many models at once: models a second at 1 to 1,024 lanes, beside what others do.

    python benchmarks/sweep.py [--work mlp,cnn] [--peers exburn,vmap] [--lanes 1,64]
    python benchmarks/sweep.py --peers "" --bytes --halving

Every lane trains the same architecture on the same rows with Adam, from weights of its
own. "exburn" is ``sweep``, each lane with the order of rows of its own seed;
"exburn-shared" has one order for all, as the hand-written programs "vmap" (JAX) and
"torch" (``torch.func.vmap``) have; "alone" is ``fit``, one model after the other.
Printed is the median warm epoch, and its models a second. Keras Tuner, Optuna and Ray
Tune start each model anew, with its compilation: of them a few trials of five epochs
are timed as a whole, and so is a sweep of as many epochs. Each (workload, peer, lanes)
runs in a process of its own; what is not installed is left out. ``--bytes`` adds the
time that the bytes of an epoch of 256 MLPs need, ``--halving`` the time to an accuracy
on the digits. With ``--json`` what is there already is not measured again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from process import options, read, result_of, write
from workloads import TOKENS, data, hand_written, keras_like

PEERS = ("exburn", "exburn-shared", "alone", "vmap", "torch")
TUNERS = ("keras-tuner", "optuna", "ray")
WORKS = ("mlp", "cnn", "lstm", "transformer")
LANES = (1, 8, 64, 256, 1_024)
ROWS = {"mlp": 60_000, "cnn": 4_096, "lstm": 2_048, "transformer": 1_024}
CPU_ROWS = {"mlp": 2_048, "cnn": 256, "lstm": 256, "transformer": 128}
BATCHES = {"mlp": 32, "cnn": 128, "lstm": 64, "transformer": 32}
EPOCHS = 5
MOST_CPU = 64  # lanes on a CPU
TRIALS = 4  # of a tuner: each takes as long as the one before


def exburn_model(work: str, rate: float = 1e-3) -> Any:
    import jax.numpy as jnp

    import exburn
    from exburn import layers

    places = layers.Lambda(lambda t: jnp.broadcast_to(jnp.arange(TOKENS), t.shape))
    model = keras_like(work, exburn, layers, places)
    model.compile(exburn.optimizers.Adam(rate), loss="cross_entropy")
    return model


def run_sweep(work: str, x, y, lanes: int, order: str) -> list[float]:
    from exburn import tuning

    class Clock(tuning.SweepCallback):
        def __init__(self):
            self.times = [time.perf_counter()]

        def on_epoch_end(self, epoch):
            self.times.append(time.perf_counter())

    clock, model = Clock(), exburn_model(work)
    tuning.sweep(
        model,
        *(x, y),
        over={"seed": range(lanes)},
        epochs=EPOCHS,
        batch_size=BATCHES[work],
        order=order,
        callbacks=clock,
        verbose=0,
    )
    return clock.times


def run_alone(work: str, x, y) -> list[float]:
    from throughput import fit_and_time

    import exburn

    model = exburn_model(work)
    return fit_and_time(model, exburn.callbacks, x, y, BATCHES[work], EPOCHS, verbose=0)


def run_vmap(work: str, x, y, lanes: int) -> list[float]:
    """Trains as a JAX user would write it: a scan over a step mapped over lanes."""
    import jax
    import jax.numpy as jnp
    import optax

    params, forward = hand_written(work)
    optimizer, batch = optax.adam(1e-3), BATCHES[work]
    # Each lane from weights of its own, near the others: that costs no time.
    keys = jax.random.split(jax.random.key(0), lanes)
    noisy = lambda key: jax.tree.map(  # noqa: E731
        lambda p: p + 1e-3 * jax.random.normal(key, p.shape), params
    )
    weights = jax.jit(jax.vmap(noisy))(keys)
    state = weights, jax.jit(jax.vmap(optimizer.init))(weights)
    x, y = jax.device_put(x), jax.device_put(y)

    def loss_of(params, x, y):
        logits = forward(params, x)
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def step(params, slots, x, y):
        loss, gradient = jax.value_and_grad(loss_of)(params, x, y)
        updates, slots = optimizer.update(gradient, slots)
        return optax.apply_updates(params, updates), slots, loss

    lanes_step = jax.vmap(step, in_axes=(0, 0, None, None))

    def epoch(state, order):
        def body(state, rows):
            params, slots = state
            params, slots, loss = lanes_step(params, slots, x[rows], y[rows])
            return (params, slots), loss

        return jax.lax.scan(body, state, order)

    epoch = jax.jit(epoch, donate_argnums=0)
    times, rng = [time.perf_counter()], np.random.default_rng(0)
    for _ in range(EPOCHS):
        order = rng.permutation(len(x))[: len(x) // batch * batch].reshape(-1, batch)
        state, losses = epoch(state, jnp.asarray(order, jnp.int32))
        np.asarray(losses.mean(0))
        times.append(time.perf_counter())
    return times


def run_torch(work: str, x, y, lanes: int) -> list[float]:
    """Trains with ``torch.func``: stacked parameters, gradients mapped over lanes."""
    import torch
    from torch.func import functional_call, grad_and_value, stack_module_state, vmap
    from torch_loop import torch_device

    if work not in ("mlp", "cnn"):  # an LSTM of cuDNN has no rule for vmap
        raise SystemExit(f"{work} is not written for PyTorch")
    device, batch = torch_device(), BATCHES[work]
    models = [_torch_model(work).to(device) for _ in range(lanes)]
    params, _ = stack_module_state(models)
    params = {name: p.detach() for name, p in params.items()}
    base, steps = models[0], 0
    first = {name: torch.zeros_like(p) for name, p in params.items()}
    second = {name: torch.zeros_like(p) for name, p in params.items()}
    x, y = torch.tensor(x, device=device), torch.tensor(y, device=device).long()
    x = x.movedim(-1, 1).contiguous() if work == "cnn" else x

    def loss_of(params, x, y):
        return torch.nn.functional.cross_entropy(functional_call(base, params, x), y)

    gradient = vmap(grad_and_value(loss_of), in_dims=(0, None, None))
    times = [time.perf_counter()]
    for _ in range(EPOCHS):
        order = torch.randperm(len(x), device=device)
        total = torch.zeros(lanes, device=device)
        for rows in order[: len(x) // batch * batch].split(batch):
            grads, losses = gradient(params, x[rows], y[rows])
            steps += 1
            rate = 1e-3 * math.sqrt(1 - 0.999**steps) / (1 - 0.9**steps)
            slots = list(first.values()), list(second.values())
            new = list(grads.values())
            torch._foreach_lerp_(slots[0], new, 0.1)
            torch._foreach_mul_(slots[1], 0.999)
            torch._foreach_addcmul_(slots[1], new, new, 0.001)
            under = torch._foreach_sqrt(slots[1])
            torch._foreach_add_(under, 1e-7)
            torch._foreach_addcdiv_(list(params.values()), slots[0], under, -rate)
            total += losses
        total.cpu()
        times.append(time.perf_counter())
    return times


def _torch_model(work: str) -> Any:
    from torch import nn

    if work == "mlp":
        stack = [nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU()]
        return nn.Sequential(*stack, nn.Linear(128, 10))
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(1600, 10),
    )


def run_keras_tuner(work: str, x, y, trials: int, folder: str) -> None:
    os.environ["KERAS_BACKEND"] = "jax"
    import keras
    import keras_tuner
    from keras import layers, ops

    def build(hp):
        places = layers.Lambda(
            lambda t: ops.broadcast_to(ops.arange(TOKENS), ops.shape(t))
        )
        model = keras_like(work, keras, layers, places)
        rate = hp.Float("rate", 1e-4, 1e-2, sampling="log")
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(rate), loss)
        return model

    objective = keras_tuner.Objective("loss", "min")
    tuner = keras_tuner.RandomSearch(
        build, objective, max_trials=trials, directory=folder, seed=0
    )
    tuner.search(x, y, batch_size=BATCHES[work], epochs=EPOCHS, verbose=0)


def _fit_trial(work: str, x, y, rate: float) -> float:
    model = exburn_model(work, rate)
    fitted = model.fit(x, y, batch_size=BATCHES[work], epochs=EPOCHS, verbose=0)
    return fitted.history["loss"][-1]


def run_optuna(work: str, x, y, trials: int, folder: str) -> None:
    """Optuna's own loop around ``fit``."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def objective(trial):
        rate = trial.suggest_float("rate", 1e-4, 1e-2, log=True)
        return _fit_trial(work, x, y, rate)

    optuna.create_study().optimize(objective, n_trials=trials)


def run_ray(work: str, x, y, trials: int, folder: str) -> None:
    """Ray Tune around ``fit``: a process for each core, or for the GPU."""
    import ray

    from exburn import tuning

    gpus = int(_device() != "cpu")
    ray.init(num_gpus=gpus, include_dashboard=False, log_to_driver=False)

    def train(trial):
        model = exburn_model(work, trial["rate"])
        hooks = [tuning.ray.Report(save=False)]
        options = {"batch_size": BATCHES[work], "epochs": EPOCHS, "verbose": 0}
        model.fit(x, y, callbacks=hooks, **options)

    tuning.ray.sweep(
        train,
        over={"rate": np.geomspace(1e-4, 1e-2, trials)},
        epochs=EPOCHS,
        monitor="loss",
        gpus_per_trial=gpus,
        folder=folder,
    )


def _device() -> str:
    """The platform, asked in a process that does not keep the device."""
    asked = "import jax; print(jax.default_backend())"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True)
    return done.stdout.strip()


def bytes_of_an_epoch() -> dict[str, float]:
    """The time that 256 MLPs' parameters, slots and gradients take to move.

    A step reads and writes parameters, both slots of Adam and gradients once: 8 arrays
    of the parameters' size. The bandwidth is that of a copy.
    """
    import jax
    import jax.numpy as jnp

    count = sum(p.size for p in jax.tree.leaves(hand_written("mlp")[0]))
    steps = _rows("mlp") // BATCHES["mlp"]
    moved = 8 * 4 * count * 256 * steps
    size = 1 << (28 if jax.default_backend() != "cpu" else 26)
    value = jnp.ones(size, jnp.float32)
    copy = jax.jit(lambda v: v * 1.0001, donate_argnums=0)
    value = copy(value).block_until_ready()
    spans = []
    for _ in range(10):
        began = time.perf_counter()
        for _ in range(5):
            value = copy(value)
        value.block_until_ready()
        spans.append((time.perf_counter() - began) / 5)
    rate = 2 * 4 * size / min(spans)
    return {"bytes": moved, "bytes_per_s": rate, "seconds": moved / rate}


def halving_to_accuracy(lanes: int = 243, epochs: int = 27) -> dict[str, Any]:
    """How long until a model of the digits reaches what the best of all reach.

    The target is the accuracy that one lane in twenty has after all epochs. One after
    the other, draws without luck reach it after ``(n + 1) / (k + 1)`` of n fits, of
    which k do.
    """
    import exburn
    from exburn import layers, tuning

    (x, y), _ = exburn.datasets.digits.load_data()
    x = x.reshape(-1, 64).astype("float32") / 16

    def make(rate=1e-3):
        stack = [layers.Dense(64, "relu"), layers.Dropout(0.2, name="drop")]
        model = exburn.Sequential([exburn.Input((64,)), *stack, layers.Dense(10)])
        model.compile(
            exburn.optimizers.Adam(rate), "cross_entropy", metrics=["accuracy"]
        )
        return model

    over = {
        "learning_rate": tuning.log_uniform(1e-5, 1.0),
        "drop/rate": tuning.uniform(0.0, 0.7),
        "seed": tuning.integers(0, 10_000),
    }
    fit = {"batch_size": 32, "validation_split": 0.2, "verbose": 0}
    shared = {"over": over, "sampler": tuning.random(lanes), "epochs": epochs, **fit}
    figures: dict[str, Any] = {"lanes": lanes, "epochs": epochs}
    for name, halving in (("whole", None), ("halving", tuning.Halving(3))):
        began = time.perf_counter()
        result = tuning.sweep(
            make(), x, y, monitor="val_accuracy", halving=halving, **shared
        )
        figures[name] = {
            "seconds": time.perf_counter() - began,
            "accuracy": result.best_score,
            "lane_epochs": sum(record.epochs for record in result.records),
        }
        if name == "whole":
            scores = np.array([record.score for record in result.records])
            figures["target"] = float(np.nanquantile(scores, 0.95))
            reach = int((scores >= figures["target"]).sum())
    times = []
    for _ in range(3):  # the last are warm
        model = make()
        began = time.perf_counter()
        model.fit(x, y, epochs=epochs, **fit)
        times.append(time.perf_counter() - began)
    fits = (lanes + 1) / (reach + 1)
    figures["alone"] = {"seconds": fits * times[-1], "fits": fits, "fit_s": times[-1]}
    return figures


def child(work: str, peer: str, lanes: int, folder: str) -> dict[str, Any]:
    x, y = data(work, _rows(work))
    if peer in TUNERS:
        trials = min(lanes, TRIALS)
        run = {"keras-tuner": run_keras_tuner, "optuna": run_optuna, "ray": run_ray}
        began = time.perf_counter()
        run[peer](work, x, y, trials, folder)
        total = time.perf_counter() - began
        return {"trials": trials, "models_per_s_with_start": trials / total}
    if peer.startswith("exburn"):
        order = "shared" if peer == "exburn-shared" else "own"
        times = run_sweep(work, x, y, lanes, order)
    elif peer == "alone":
        lanes, times = 1, run_alone(work, x, y)
    else:
        times = {"vmap": run_vmap, "torch": run_torch}[peer](work, x, y, lanes)
    warm = np.diff(times)[1:]
    return {
        "rows": len(x),
        "epoch_s": statistics.median(warm),
        "models_per_s": lanes / statistics.median(warm),
        "models_per_s_with_start": lanes / (times[-1] - times[0]),
        "warm": warm.tolist(),
    }


def _rows(work: str) -> int:
    return int(os.environ["SWEEP_ROWS"].split(",")[WORKS.index(work)])


def main() -> None:
    parser = options(__doc__, (*PEERS, *TUNERS), WORKS)
    parser.add_argument("--lanes", default=",".join(map(str, LANES)))
    parser.add_argument("--rows", type=int, help="of every workload")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--bytes", action="store_true")
    parser.add_argument("--halving", action="store_true")
    args, extra = parser.parse_known_args()
    if args.child:
        work, peer = args.child
        if peer == "bytes":
            result = bytes_of_an_epoch()
        elif peer == "halving":
            result = halving_to_accuracy()
        else:
            result = child(work, peer, int(extra[0]), extra[1])
        print("RESULT " + json.dumps(result))
        return
    measure(args)


def measure(args: argparse.Namespace) -> None:
    """Measures what is asked for and not known yet, and prints it."""
    cpu = _device() == "cpu"
    rows = CPU_ROWS if cpu else ROWS
    counts = ",".join(str(args.rows or rows[work]) for work in WORKS)
    env = {"SWEEP_ROWS": counts, "XLA_PYTHON_CLIENT_MEM_FRACTION": "0.9"}
    results = read(args.json)
    file = str(Path(__file__))

    def note(work: str, name: str, result: Any) -> None:
        if result is not None:
            results.setdefault(work, {})[name] = result
            if args.json is not None:
                write(args.json, results)

    for name, asked in (("bytes", args.bytes), ("halving", args.halving)):
        if asked and name not in results.get("mlp", {}):
            result = result_of(file, "mlp", name, env=env, timeout=args.timeout)
            note(name, name, result)
            print(name, json.dumps(result, indent=1), flush=True)
    for work in args.work.split(","):
        for lanes in map(int, args.lanes.split(",")):
            for peer in filter(None, args.peers.split(",")):
                name = f"{peer}@{1 if peer == 'alone' else lanes}"
                if name in results.get(work, {}) or cpu and lanes > MOST_CPU:
                    continue
                if peer in TUNERS and lanes != LANES[1]:
                    continue  # their models a second do not depend on how many
                with tempfile.TemporaryDirectory() as folder:
                    words = (work, peer, str(lanes), folder)
                    result = result_of(file, *words, env=env, timeout=args.timeout)
                note(work, name, result)
                if result is not None:
                    rate = result.get("models_per_s", float("nan"))
                    whole = result["models_per_s_with_start"]
                    line = f"{rate:9.2f} models/s warm, {whole:9.2f} with its start"
                    print(f"{work:<12} {lanes:>5} {peer:<14} {line}", flush=True)


if __name__ == "__main__":
    main()
