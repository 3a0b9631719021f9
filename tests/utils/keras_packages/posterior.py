"""bayesflow 2.0: a small posterior estimator, trained for ten epochs."""

import sys
import time

import bayesflow
import keras
import numpy as np

keras.utils.set_random_seed(0)
rng = np.random.default_rng(0)
theta = rng.normal(size=(2000, 2)).astype("float32")
x = (theta + 0.3 * rng.normal(size=theta.shape)).astype("float32")
adapter = bayesflow.Adapter().convert_dtype("float64", "float32")
adapter = adapter.rename("theta", "inference_variables")
adapter = adapter.rename("x", "inference_conditions")
estimator = bayesflow.approximators.ContinuousApproximator(
    adapter=adapter, inference_network=bayesflow.networks.CouplingFlow(depth=2)
)
estimator.compile(optimizer=keras.optimizers.Adam(5e-4))
dataset = bayesflow.datasets.OfflineDataset(
    data={"theta": theta, "x": x}, batch_size=64, adapter=adapter
)
begin = time.perf_counter()
history = estimator.fit(dataset=dataset, epochs=10, verbose=0)
whole = time.perf_counter() - begin
draws = estimator.sample(conditions={"x": x[:50]}, num_samples=300)["theta"]
steady = []
for _ in range(8):
    begin = time.perf_counter()
    estimator.fit(dataset=dataset, epochs=9, verbose=0)
    steady.append(time.perf_counter() - begin)
np.savez(
    sys.argv[1],
    losses=np.array(history.history["loss"]),
    means=draws.mean(1),
    seconds=np.array([min(steady), np.median(steady), whole]),
)
