"""Attributions by captum of a small network of each kind, for the tests.

Run where torch and captum are installed; it writes ../recorded/explanations.npz.
"""

from pathlib import Path

import numpy as np
import torch
from captum import attr
from torch import nn

rng = np.random.default_rng(7)


def draw(*shape):
    return rng.normal(0, 0.5, shape).astype(np.float32)


def torch_weights(module, kernel, bias):
    if kernel.ndim == 4:
        kernel = kernel.transpose(3, 2, 0, 1)
    else:
        kernel = kernel.T
    module.weight.data = torch.tensor(kernel.copy())
    module.bias.data = torch.tensor(bias)


class Channels(nn.Module):
    """From [rows, channels, height, width] to flat rows with the channels last."""

    def forward(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)


arrays = {
    "mlp/0": draw(6, 8),
    "mlp/1": draw(8),
    "mlp/2": draw(8, 3),
    "mlp/3": draw(3),
    "mlp/x": draw(4, 6),
    "mlp/base": draw(6),
    "cnn/0": draw(3, 3, 2, 3),
    "cnn/1": draw(3),
    "cnn/2": draw(3, 3, 3, 4),
    "cnn/3": draw(4),
    "cnn/4": draw(6 * 6 * 4, 3),
    "cnn/5": draw(3),
    "cnn/x": draw(2, 10, 10, 2),
}
mlp = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
torch_weights(mlp[0], arrays["mlp/0"], arrays["mlp/1"])
torch_weights(mlp[2], arrays["mlp/2"], arrays["mlp/3"])
cnn = nn.Sequential(
    nn.Conv2d(2, 3, 3),
    nn.Tanh(),
    nn.Conv2d(3, 4, 3),
    nn.Softplus(),
    Channels(),
    nn.Linear(144, 3),
)
for place, layer in enumerate((cnn[0], cnn[2], cnn[5])):
    torch_weights(layer, arrays[f"cnn/{2 * place}"], arrays[f"cnn/{2 * place + 1}"])

x = torch.tensor(arrays["mlp/x"])
target = mlp(x).argmax(1)
base = torch.tensor(arrays["mlp/base"])[None]
found = {
    "mlp/saliency": attr.Saliency(mlp).attribute(x, target=target),
    "mlp/integrated_gradients": attr.IntegratedGradients(mlp).attribute(
        x, base, target=target, n_steps=20
    ),
    "mlp/shapley": attr.ShapleyValues(mlp).attribute(x, base, target=target),
    "mlp/occlusion": attr.Occlusion(mlp).attribute(x, (1,), target=target),
}
x = torch.tensor(arrays["cnn/x"].transpose(0, 3, 1, 2).copy())
images = {
    "saliency": attr.Saliency(cnn).attribute(x, target=1),
    "integrated_gradients": attr.IntegratedGradients(cnn).attribute(
        x, 0, target=1, n_steps=20
    ),
    "occlusion": attr.Occlusion(cnn).attribute(
        x, (2, 3, 4), strides=(2, 2, 3), target=1
    ),
    "gradcam": attr.LayerGradCam(cnn, cnn[3]).attribute(
        x, target=1, relu_attributions=True
    ),
}
found |= {f"cnn/{name}": v.permute(0, 2, 3, 1) for name, v in images.items()}
arrays |= {name: v.detach().numpy().astype(np.float32) for name, v in found.items()}
folder = Path(__file__).parent.parent / "recorded"
np.savez_compressed(folder / "explanations.npz", **arrays)
