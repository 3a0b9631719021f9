"""Shapley values by shap of a small network, for the tests.

Run where torch and shap are installed; it adds to ../recorded/shapley.npz the values
of the exact and of the sampling explainer, of a network whose weights are recorded, and
of a model with many columns those of the kernel explainer.
"""

from pathlib import Path

import numpy as np
import shap

rng = np.random.default_rng(11)
arrays = {
    "0": rng.normal(0, 0.8, (5, 8)),
    "1": rng.normal(0, 0.5, 8),
    "2": rng.normal(0, 0.8, (8, 2)),
    "3": rng.normal(0, 0.5, 2),
    "x": rng.normal(0, 1, (6, 5)),
    "base": rng.normal(0, 0.3, 5),
}
arrays = {name: value.astype(np.float32) for name, value in arrays.items()}


def score(x):
    hidden = np.tanh(x @ arrays["0"] + arrays["1"])
    return (hidden @ arrays["2"] + arrays["3"])[:, 1]


base, x = arrays["base"][None], arrays["x"]
exact = shap.ExactExplainer(score, shap.maskers.Independent(base))
arrays["exact"] = exact(x).values.astype(np.float32)
kernel = shap.KernelExplainer(score, base)
arrays["kernel"] = kernel.shap_values(x, nsamples=200, silent=True).astype(np.float32)
sampling = shap.SamplingExplainer(score, base)
arrays["sampling"] = sampling.shap_values(x, nsamples=2000).astype(np.float32)
for name in ("kernel", "sampling"):
    print(name, np.abs(arrays[name] - arrays["exact"]).max())
folder = Path(__file__).parent.parent / "recorded"
np.savez_compressed(folder / "shapley.npz", **arrays)
