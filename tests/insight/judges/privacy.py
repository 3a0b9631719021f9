"""Records clipped sums and epsilons of opacus, and epsilons of dp-accounting.

``/path/to/judges/bin/python tests/insight/judges/privacy.py`` writes
``tests/insight/recorded/privacy.npz``.
"""

from pathlib import Path

import dp_accounting
import numpy as np
import torch
from dp_accounting import pld, rdp
from opacus import GradSampleModule
from opacus.accountants import RDPAccountant
from torch import nn

CASES = [(1.1, 0.004, 3000), (0.7, 0.02, 200), (2.0, 0.5, 40), (4.0, 1.0, 10)]
TARGETS = [(3.0, 0.01, 1000), (1.0, 0.05, 400), (8.0, 0.2, 50)]
DELTA = 1e-5


def clipped_sums(model, x, y, clip):
    """Clipped as ``opacus.optimizers.DPOptimizer`` does, with flat clipping."""
    private = GradSampleModule(model, loss_reduction="sum")
    nn.functional.cross_entropy(private(x), y, reduction="sum").backward()
    from opacus.optimizers import DPOptimizer

    optimizer = DPOptimizer(
        torch.optim.SGD(private.parameters(), lr=0.1),
        noise_multiplier=0.0,
        max_grad_norm=clip,
        expected_batch_size=1,
    )
    optimizer.clip_and_accumulate()
    return [p.summed_grad.numpy() for p in private.parameters()]


def main():
    torch.manual_seed(0)
    out = {}
    mlp = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    cnn = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 3 * 4, 3)
    )
    for name, model, shape in (("mlp", mlp, (6,)), ("cnn", cnn, (2, 5, 6))):
        x = torch.randn(9, *shape) * torch.linspace(0.1, 3, 9).reshape(
            -1, *[1] * len(shape)
        )
        y = torch.arange(9) % 3
        weights = [p.detach().numpy().copy() for p in model.parameters()]
        sums = clipped_sums(model, x, y, 0.8)
        out |= {f"{name}/x": x.numpy(), f"{name}/y": y.numpy()}
        for i, (weight, total) in enumerate(zip(weights, sums, strict=True)):
            out[f"{name}/weight{i}"], out[f"{name}/sum{i}"] = weight, total
    opacus, exact = [], {"rdp": [], "pld": []}
    for noise, rate, steps in CASES:
        one = RDPAccountant()
        one.history = [(noise, rate, steps)]
        opacus.append(one.get_epsilon(DELTA))
        event = dp_accounting.SelfComposedDpEvent(
            dp_accounting.PoissonSampledDpEvent(
                rate, dp_accounting.GaussianDpEvent(noise)
            ),
            steps,
        )
        for name, kind in (("rdp", rdp.RdpAccountant), ("pld", pld.PLDAccountant)):
            accountant = kind()
            accountant.compose(event)
            exact[name].append(accountant.get_epsilon(DELTA))
    out |= {"cases": np.array(CASES), "opacus": np.array(opacus)}
    out |= {name: np.array(values) for name, values in exact.items()}
    noises = [
        dp_accounting.calibrate_dp_mechanism(
            rdp.RdpAccountant,
            lambda noise, rate=rate, steps=steps: dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(
                    rate, dp_accounting.GaussianDpEvent(noise)
                ),
                steps,
            ),
            epsilon,
            DELTA,
        )
        for epsilon, rate, steps in TARGETS
    ]
    out |= {"targets": np.array(TARGETS), "noises": np.array(noises)}
    place = Path(__file__).parents[1] / "recorded" / "privacy.npz"
    place.parent.mkdir(exist_ok=True)
    np.savez_compressed(place, **out)


if __name__ == "__main__":
    main()
