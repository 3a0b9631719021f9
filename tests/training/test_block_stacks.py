"""Models of equal blocks train as a loop of them, to the same weights."""

from __future__ import annotations

import contextlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import config, layers
from exburn.training import block_stacks, program
from exburn.training.block_stacks import BlockStacks
from exburn.training.state import TrainState

ROWS, WIDTH, BLOCKS = 48, 4, 5
RNG = np.random.default_rng(0)
X = RNG.standard_normal((ROWS, 4, WIDTH)).astype("float32")
Y = RNG.standard_normal((ROWS, 1)).astype("float32")


def dense(h):
    z = layers.LayerNormalization()(h)
    z = layers.Dense(2 * WIDTH, activation="gelu")(z)
    return layers.Add()([h, layers.Dense(WIDTH)(z)])


def attention(h):
    z = layers.LayerNormalization()(h)
    return layers.Add()([h, layers.MultiHeadAttention(2, WIDTH // 2)(z, z)])


def dropout(h):
    return dense(layers.Dropout(0.2)(h))


def normalized(h):
    return layers.ReLU()(layers.BatchNormalization()(dense(h)))


def penalized(h):
    h = layers.ActivityRegularization(l2=1e-3)(dense(h))
    return layers.Dense(WIDTH, kernel_regularizer="l2")(h)


def recurrent(h):
    return layers.Add()([h, layers.GRU(WIDTH, return_sequences=True)(h)])


def make(block=dense, optimizer: Any = "adam", blocks: int = BLOCKS, **options: Any):
    exburn.utils.set_random_seed(1)
    inputs = h = exburn.Input((4, WIDTH))
    for _ in range(blocks):
        h = block(h)
    outputs = layers.Dense(1)(layers.GlobalAveragePooling1D()(h))
    model = exburn.Model(inputs, outputs)
    model.compile(optimizer=optimizer, loss="mse", seed=2, **options)
    return model


@pytest.fixture(autouse=True)
def small(monkeypatch) -> None:
    """Small models of few blocks are made loops, too."""
    monkeypatch.setitem(config._settings, "block_loops", True)
    monkeypatch.setattr(block_stacks, "LEAST_OPERATIONS", 100)
    monkeypatch.setattr(block_stacks, "LEAST_OF_BLOCK", 10)
    monkeypatch.setattr(block_stacks, "ELEMENTS", (0, 10**9))


@pytest.fixture
def by_itself(monkeypatch) -> Any:
    """In the block, no parameters are put together."""

    @contextlib.contextmanager
    def block():
        with monkeypatch.context() as patch:
            patch.setattr(program, "is_worth_packing", lambda data, index: False)
            yield

    return block


def train(model: Any, **options: Any) -> dict[str, list[float]]:
    return model.fit(
        X, Y, **{"epochs": 2, "batch_size": 8, "verbose": 0, **options}
    ).history


def columns(model: Any) -> int:
    stacks = model._training_session.trainer.preparer.programs.steps.stacks
    return 0 if stacks is None else len(stacks.columns)


def compare(model: Any, other: Any, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    for one, two in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(one, two, rtol=rtol, atol=atol)


@pytest.mark.parametrize(
    ("block", "per_block"),
    [(dense, 6), (attention, 10), (dropout, 6), (normalized, 8), (penalized, 8)],
)
def test_blocks_train_to_the_same_weights(by_itself, cpu_only, block, per_block):
    together, plain = make(block), make(block)
    logs = train(together)
    with by_itself():
        expected = train(plain)
    assert columns(together) == per_block
    np.testing.assert_allclose(logs["loss"], expected["loss"], rtol=1e-5)
    compare(together, plain)


@pytest.mark.parametrize(
    "optimizer",
    [
        exburn.optimizers.SGD(0.01, momentum=0.9, global_clipnorm=1.0),
        exburn.optimizers.AdamW(0.01, weight_decay=0.1),
        exburn.optimizers.Adam(0.01, amsgrad=True, use_ema=True, ema_momentum=0.9),
        exburn.optimizers.RMSprop(0.001, momentum=0.9, centered=True),
        exburn.optimizers.Nadam(0.001),
        exburn.optimizers.Lion(0.001),
        exburn.optimizers.Adagrad(0.001),
        exburn.optimizers.Adadelta(0.1),
        exburn.optimizers.Adamax(0.001),
    ],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_optimizers_update_stacks_as_they_do_parameters(optimizer):
    """Without a model: two updates of six parameters, or of them as an array."""
    draw = np.random.default_rng(0).standard_normal
    names = [f"block_{number}/kernel" for number in range(6)]
    stacks = BlockStacks((tuple(names),))
    params = {name: jnp.asarray(draw((2, 3)), "float32") for name in names}
    state = TrainState(params, {}, {}, optimizer.init(params), None, 0, 0)
    packed = stacks.pack(state)
    for _ in range(2):
        grads = {name: jnp.asarray(draw((2, 3)), "float32") for name in names}
        both = [
            optimizer.update(slopes, one.opt_state, one.params)
            for one, slopes in (
                (state, grads),
                (packed, stacks.pack(state.replace(params=grads)).params),
            )
        ]
        state, packed = (
            one.replace(params=params, opt_state=opt_state)
            for one, (params, opt_state) in zip((state, packed), both, strict=True)
        )
    assert packed.params.keys() == {names[0]}
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7),
        stacks.unpack(packed),
        state,
    )


class MyAdam(exburn.optimizers.Adam):
    """May do with a parameter what it likes."""


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": MyAdam()},
        {"optimizer": exburn.optimizers.Adam(clipnorm=1.0)},
        {"optimizer": exburn.optimizers.Lamb()},
        {"optimizer": exburn.optimizers.Adam(gradient_accumulation_steps=2)},
        {"optimizer": exburn.optimizers.AdamW(weight_decay_exclusions=("bias",))},
        {"block": recurrent},
        {"blocks": 2},
        {"block": lambda h: layers.Dense(WIDTH, kernel_constraint="non_neg")(dense(h))},
    ],
)
def test_what_may_compute_otherwise_stays_block_by_block(cpu_only, options):
    model = make(**options)
    train(model, epochs=1)
    assert columns(model) == 0


def test_halves_train_alike(by_itself, cpu_only):
    before = exburn.config.dtype_policy()
    exburn.config.set_dtype_policy("mixed_bfloat16")
    try:
        together, plain = make(), make()
    finally:
        exburn.config.set_dtype_policy(before)
    logs = train(together)
    with by_itself():
        expected = train(plain)
    np.testing.assert_allclose(logs["loss"], expected["loss"], rtol=0.02)


def test_hooks_see_and_set_each_parameter_by_itself(by_itself, cpu_only):
    class Doubling(exburn.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            weight = self.model.layers[2].kernel
            seen.append(np.array(weight[...]))
            weight[...] = 1.5 * weight[...]

    seen: list[np.ndarray] = []
    together, plain = make(), make()
    train(together, epochs=3, callbacks=[Doubling()])
    first, seen = seen, []
    with by_itself():
        train(plain, epochs=3, callbacks=[Doubling()])
    for one, two in zip(first, seen, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5)
    compare(together, plain)


def test_layers_that_are_frozen_between_epochs_stay(by_itself, cpu_only):
    class Freezing(exburn.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            self.model.layers[2].trainable = False
            self.model.layers[6].trainable = False

    together, plain = make(), make()
    train(together, epochs=3, callbacks=[Freezing()])
    with by_itself():
        train(plain, epochs=3, callbacks=[Freezing()])
    compare(together, plain)


def test_a_file_written_before_goes_on(by_itself, cpu_only, tmp_path):
    """Training is resumed across both forms, in either direction."""
    whole, plain = make(), make()
    train(whole, epochs=2)
    with by_itself():
        train(plain, epochs=1)
    plain.save(tmp_path / "model.exburn")
    other = exburn.models.load_model(tmp_path / "model.exburn")
    train(other, epochs=2, initial_epoch=1)
    assert columns(other)
    compare(whole, other)


def test_a_checkpoint_of_one_form_is_taken_up_in_the_other(
    by_itself, cpu_only, tmp_path
):
    whole = make()
    train(whole, epochs=3)
    backup = exburn.callbacks.BackupAndRestore(tmp_path, delete_checkpoint=False)

    class Ending(exburn.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 0:
                raise KeyboardInterrupt

    interrupted = make()
    with by_itself(), pytest.raises(KeyboardInterrupt):
        train(interrupted, epochs=3, callbacks=[backup, Ending()])
    resumed = make()
    train(resumed, epochs=3, callbacks=[backup])
    assert columns(resumed)
    compare(whole, resumed)


def test_single_batches_between_runs_train_on(by_itself, cpu_only):
    together, plain = make(), make()
    for model in (together, plain):
        with by_itself() if model is plain else contextlib.nullcontext():
            train(model, epochs=1)
            model.train_on_batch(X[:8], Y[:8])
            train(model, epochs=1)
    compare(together, plain)


def test_the_arrays_of_a_run_are_consumed(cpu_only):
    model = make()
    model.predict(X[:2], verbose=0)
    before = [weight[...] for weight in model.trainable_weights]
    original = np.array(before[0])
    train(model, epochs=1)
    np.testing.assert_array_equal(before[0], original)  # which somebody holds
    assert np.isfinite(model.get_weights()[0]).all()


def test_rematerialized_layers_train_alike(by_itself, cpu_only):
    together, plain = make(), make()
    for model in (together, plain):
        model.remat("dense*")
    train(together)
    with by_itself():
        train(plain)
    assert columns(together)
    compare(together, plain)


def test_blocks_with_frozen_matrices_stay_as_they_are(cpu_only):
    """Each step would put the frozen ones together."""
    model = make()
    for layer in model.layers:
        if isinstance(layer, layers.Dense) and layer.units == 2 * WIDTH:
            layer.trainable = False
    train(model, epochs=1)
    assert columns(model) == 0


class Loop(exburn.Model):
    """Blocks that a user's loop calls."""

    def __init__(self):
        super().__init__()
        self.blocks = [layers.Dense(WIDTH, activation="gelu") for _ in range(12)]
        self.head = layers.Dense(1)

    def call(self, x):
        for block in self.blocks:
            x = x + 0.5 * block(x)
        return self.head(x.mean(1))


def test_a_loop_of_the_users_is_found(by_itself, monkeypatch, cpu_only):
    monkeypatch.setattr(block_stacks, "LEAST_OPERATIONS", 40)
    monkeypatch.setattr(block_stacks, "LEAST_OF_BLOCK", 5)
    models = []
    for _ in range(2):
        exburn.utils.set_random_seed(1)
        models.append(model := Loop())
        model.compile(optimizer="adam", loss="mse", seed=2)
        with by_itself() if model is not models[0] else contextlib.nullcontext():
            train(model)
    assert columns(models[0]) == 2
    compare(*models)


@pytest.mark.parametrize(
    "limit",
    [
        {"LEAST_OPERATIONS": 10**6},
        {"LEAST_OF_BLOCK": 10**6},
        {"ELEMENTS": (10**6, 10**9)},
        {"ELEMENTS": (0, 10)},
    ],
)
def test_blocks_of_other_sizes_stay_as_they_are(monkeypatch, cpu_only, limit):
    for name, value in limit.items():
        monkeypatch.setattr(block_stacks, name, value)
    model = make()
    train(model, epochs=1)
    assert columns(model) == 0


def test_blocks_stay_as_they_are_unless_loops_are_asked_for(cpu_only):
    config.disable_block_loops()
    model = make()
    train(model, epochs=1)
    assert columns(model) == 0


def test_one_program_trains_in_one_trace(cpu_only):
    model = make()
    train(model, epochs=3)
    assert model.trace_counts["train"] == 1
