"""Convolutions of 3 × 3 and poolings: the builder of VGG16 and VGG19.

Source: Simonyan & Zisserman, *Very Deep Convolutional Networks for Large-Scale Image
Recognition*, 2015.
"""

from __future__ import annotations

from exburn.applications.application import Application, PretrainedFiles
from exburn.layers import Conv2D, Dense, Flatten, MaxPooling2D
from exburn.models import Model

SOURCE = (
    "Source: Simonyan & Zisserman, *Very Deep Convolutional Networks for Large-Scale\n"
    "Image Recognition*, 2015."
)
_FILTERS = (64, 128, 256, 512, 512)


def build(
    arguments: tuple, depths: tuple[int, ...], pretrained: PretrainedFiles
) -> Model:
    """The network with so many convolutions in each of its five stages."""
    app = Application(*arguments, size=224, pretrained=pretrained, scaling="caffe")
    x = app.input
    for stage, (filters, depth) in enumerate(zip(_FILTERS, depths, strict=True), 1):
        for number in range(1, depth + 1):
            name = f"block{stage}_conv{number}"
            x = Conv2D(filters, 3, activation="relu", padding="same", name=name)(x)
        x = MaxPooling2D(2, strides=2, name=f"block{stage}_pool")(x)
    if not app.include_top:
        return app.finish(app.pool(x, named=False))
    x = Flatten(name="flatten")(x)
    for name in ("fc1", "fc2"):
        x = Dense(4096, activation="relu", name=name)(x)
    return app.finish(app.classify(x))
