"""Posteriors of a last layer by laplace-torch, for the tests.

Run where torch and laplace-torch are installed; it writes ../recorded/last_layer.npz.
"""

from pathlib import Path

import numpy as np
import torch
from laplace import Laplace
from laplace.curvature import BackPackGGN, CurvlinopsGGN
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
rng = np.random.default_rng(3)


class Network(nn.Module):
    """A layer of tanh and a constant, and a linear one, whose last row is the bias.

    Its Kronecker factors are those of the weights with the bias, as here.
    """

    def __init__(self, first, last):
        super().__init__()
        self.first = torch.tensor(first)
        self.last = nn.Linear(*last.shape, bias=False)
        self.last.weight.data = torch.tensor(last.T.copy())

    def forward(self, x):
        hidden = torch.tanh(x @ self.first)
        return self.last(torch.cat([hidden, torch.ones(len(x), 1)], 1))


arrays = {
    "x": rng.normal(size=(40, 4)),
    "first": rng.normal(0, 0.7, (4, 5)),
    "x_new": rng.normal(0, 2, (6, 4)),
    "classification/last": rng.normal(0, 1, (6, 3)),
    "classification/y": rng.integers(0, 3, 40),
    "regression/last": rng.normal(0, 1, (6, 2)),
    "regression/y": rng.normal(0, 1, (40, 2)),
}
NAMES = {"kron": "kronecker", "full": "full", "diag": "diagonal"}
for task in ("classification", "regression"):
    y = torch.tensor(arrays[f"{task}/y"])
    loader = DataLoader(TensorDataset(torch.tensor(arrays["x"]), y), batch_size=40)
    for structure, name in NAMES.items():
        network = Network(arrays["first"], arrays[f"{task}/last"])
        options = {"sigma_noise": 0.5} if task == "regression" else {}
        judge = Laplace(
            network,
            task,
            subset_of_weights="last_layer",
            hessian_structure=structure,
            last_layer_name="last",
            prior_precision=2.0,
            backend={"kron": CurvlinopsGGN}.get(structure, BackPackGGN)
            if structure != "full"
            else BackPackGGN,
            **options,
        )
        judge.fit(loader)
        x_new = torch.tensor(arrays["x_new"])
        mean, variance = judge._glm_predictive_distribution(x_new)
        place = f"{task}/{name}"
        arrays[f"{place}/variance"] = variance.detach().numpy()
        arrays[f"{place}/evidence"] = judge.log_marginal_likelihood().detach().numpy()
        if task == "classification":
            p = judge(x_new, link_approx="probit")
            arrays[f"{place}/probit"] = p.detach().numpy()
        if structure == "full":
            covariance = judge.posterior_covariance.detach().numpy()
            arrays[f"{place}/covariance"] = covariance
        judge.optimize_prior_precision(method="marglik", n_steps=3000, lr=1e-2)
        best = judge.prior_precision.detach().numpy()
        arrays[f"{place}/best_prior"] = best
        print(place, best, arrays[f"{place}/evidence"])

file = Path(__file__).parent.parent / "recorded" / "last_layer.npz"
np.savez_compressed(file, **arrays)
