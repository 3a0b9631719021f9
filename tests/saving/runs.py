"""Models of which nothing is left but their programs, and runs that stop anywhere."""

import jax
import numpy as np

import exburn
from exburn import layers, optimizers
from exburn.callbacks import Callback, StateCheckpoint

RNG = np.random.default_rng(0)
X = RNG.standard_normal((191, 8)).astype(np.float32)
Y = (X @ RNG.standard_normal((8, 3))).argmax(-1).astype(np.int32)
MODELS = {}


def make(seed=3, optimizer=None, dtype=None, **settings):
    """A new model; or one with the same programs, of which nothing else is left."""
    config = getattr(optimizer, "get_config", lambda: optimizer)()
    key = repr((config, dtype, settings))
    if key not in MODELS:
        model = build(seed, optimizer, dtype, settings)
        rate = float(model.optimizer.learning_rate)
        MODELS[key] = model, {3: model.get_weights()}, rate
    model, initial, rate = MODELS[key]
    trainer = model._training_session.trainer
    trainer.holder.opt_state, trainer.holder.step, trainer.holder.epochs = None, 0, 0
    trainer.holder.reseed(seed)
    model.optimizer.learning_rate = rate  # which callbacks may have changed
    if seed in initial:
        model.set_weights(initial[seed])
    else:
        scramble(model)
    return model


def build(seed, optimizer, dtype, settings):
    model = exburn.Sequential(
        [
            exburn.Input((8,)),
            layers.Dense(12, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(0.3),
            layers.Dense(3),
        ],
        dtype=dtype,
    )
    optimizer = optimizer or optimizers.Adam(
        0.02, use_ema=True, gradient_accumulation_steps=5
    )
    settings = {"loss": "cross_entropy", "metrics": ["accuracy"]} | settings
    model.compile(optimizer, seed=seed, **settings)
    return model


def scramble(model):
    """Nothing of the model may survive a resumption."""
    model.set_weights([np.full(w.shape, 7, w.dtype) for w in model.get_weights()])


def outcome(model, history, *callbacks):
    """Everything that a run leaves behind, as bytes."""
    arrays = [
        *model.get_weights(),
        *jax.tree.leaves(model._training_session.holder.opt_state),
    ]
    states = [
        {k: v for k, v in c.state_dict().items() if k != "best_weights"}
        for c in callbacks
    ]
    best = [
        w.tobytes() for c in callbacks for w in getattr(c, "best_weights", None) or ()
    ]
    return {
        "arrays": [np.asarray(a).tobytes() for a in arrays],
        "history": repr(history.history),
        "epochs": history.epoch,
        "callbacks": repr(states),
        "best": best,
    }


class AtEveryPoint(StateCheckpoint):
    """Saves after every chunk, and leaves the chunks as they are."""

    def on_checkpoint(self, point):
        point.save(self.writer)


class Stops(Callback):
    """Raises, or ends the training, at a step of an epoch."""

    def __init__(self, epoch, batch=None, error=None):
        self.at, self.error, self.epoch = (epoch, batch), error, None

    def on_epoch_begin(self, epoch, logs=None):
        self.epoch = epoch

    def on_train_batch_end(self, batch, logs=None):
        if (self.epoch, batch) == self.at:
            if self.error:
                raise self.error
            self.model.stop_training = True


def fit(model, callbacks, **options):
    options = {"batch_size": 32, "epochs": 4, "verbose": 0} | options
    return model.fit(X, Y, callbacks=callbacks, **options)
