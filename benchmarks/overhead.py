"""What `fit` itself costs: per call, and per epoch of one step of a tiny model.

    python benchmarks/overhead.py [--calls 200] [--epochs 500] [--json out.json]

A model of one `Dense(1)`, 32 rows, one batch; the progress bar writes into a terminal
that is thrown away, and a metric is on. An epoch's cost is the slope between fits of
one and of many epochs; `fit`, `evaluate` and `predict` are medians over calls. Beside
them are a hand-written epoch (one compiled step, its loss read back), and Keras.
Processor time is given too, for machines that are busy.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from process import options, result_of, write

X = np.random.default_rng(0).standard_normal((32, 4), dtype=np.float32)
Y = X.sum(-1, keepdims=True)
PEERS = ("exburn", "exburn-silent", "hand-written", "keras")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def cost(call: Callable[[], Any], calls: int) -> tuple[float, float]:
    """Median seconds by the clock, and mean seconds of the process."""
    times = []
    start = time.process_time()
    for _ in range(calls):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return statistics.median(times), (time.process_time() - start) / calls


def library_costs(k: Any, verbose: int, calls: int, epochs: int) -> dict[str, Any]:
    model = k.Sequential([k.Input((4,)), k.layers.Dense(1)])
    model.compile("adam", loss="mse", metrics=["mae"])

    def fit(epochs: int) -> Callable[[], Any]:
        return lambda: model.fit(X, Y, batch_size=32, epochs=epochs, verbose=verbose)

    with contextlib.redirect_stdout(Terminal()):
        for call in (fit(2), fit(1)):
            call()
        model.evaluate(X, Y, verbose=verbose)
        model.predict(X, verbose=verbose)
        one = cost(fit(1), calls)
        many = cost(fit(1 + epochs), 3)
        evaluate = cost(lambda: model.evaluate(X, Y, verbose=verbose), calls)
        predict = cost(lambda: model.predict(X, verbose=verbose), calls)
    epoch = [(m - o) / epochs for m, o in zip(many, one, strict=True)]
    return {"fit": one, "epoch": epoch, "evaluate": evaluate, "predict": predict}


def hand_written_costs(calls: int) -> dict[str, Any]:
    import jax
    import jax.numpy as jnp
    import optax

    optimizer = optax.adam(1e-3)

    @jax.jit
    def step(params, state, x, y):
        def objective(params):
            error = x @ params["w"] + params["b"] - y
            return jnp.square(error).mean(), jnp.abs(error).mean()

        (loss, mae), grads = jax.value_and_grad(objective, has_aux=True)(params)
        updates, state = optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, loss, mae

    params = {"w": jnp.zeros((4, 1)), "b": jnp.zeros(1)}
    arrays = [params, optimizer.init(params)]
    x, y = jax.device_put((X, Y))

    def epoch() -> None:
        arrays[0], arrays[1], *logs = step(arrays[0], arrays[1], x, y)
        jax.device_get(logs)

    epoch()
    return {"epoch": cost(epoch, calls)}


def child(peer: str, calls: int, epochs: int) -> dict[str, Any]:
    if peer == "hand-written":
        return hand_written_costs(calls)
    if peer == "keras":
        os.environ["KERAS_BACKEND"] = "jax"
        import keras

        return library_costs(keras, 0, max(calls // 10, 3), max(epochs // 10, 3))
    import exburn

    return library_costs(exburn, int(peer == "exburn"), calls, epochs)


def main() -> None:
    parser = options(__doc__, PEERS)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=500)
    args = parser.parse_args()
    if args.child:
        result = child(args.child[1], args.calls, args.epochs)
        print("RESULT " + json.dumps(result))
        return
    results = {}
    numbers = ["--calls", str(args.calls), "--epochs", str(args.epochs)]
    for peer in args.peers.split(","):
        results[peer] = result_of(__file__, "overhead", peer, *numbers)
        for what, (clock, processor) in (results[peer] or {}).items():
            line = f"{peer:14} {what:9} {clock * 1e3:8.3f} ms"
            print(f"{line}   processor {processor * 1e3:8.3f} ms", flush=True)
    if args.json:
        write(args.json, results)


if __name__ == "__main__":
    main()
