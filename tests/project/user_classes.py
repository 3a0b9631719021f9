"""Classes as users write them, with and without types; no checker has a complaint.

Nothing runs this: `test_types.py` gives it to pyright and mypy.
"""

from typing import Any

import jax
import numpy as np

import exburn as keras
from exburn import (
    callbacks,
    constraints,
    initializers,
    layers,
    losses,
    metrics,
    ops,
    optimizers,
    regularizers,
)


class Everything(layers.Layer):
    def __init__(self, units: int = 32, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units
        self.supports_masking = True

    def build(self, input_shape: tuple[int, ...]) -> None:
        self.w = self.add_weight(
            shape=(input_shape[-1], self.units),
            initializer="random_normal",
            trainable=True,
            name="w",
        )
        super().build(input_shape)

    def call(
        self, inputs: jax.Array, training: bool | None = None, mask: Any = None
    ) -> jax.Array:
        return ops.matmul(inputs, self.w)

    def compute_output_shape(self, input_shape: tuple[int, ...]) -> tuple[int, ...]:
        return input_shape

    def compute_output_spec(self, inputs):
        return inputs

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        return mask

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "units": self.units}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "Everything":
        return cls(**config)

    def get_build_config(self):
        return {}

    def build_from_config(self, config):
        self.build(config["input_shape"])

    def save_own_variables(self, store): ...
    def load_own_variables(self, store): ...
    def save_assets(self, dir_path): ...
    def load_assets(self, dir_path): ...
    def quantize(self, mode): ...
    def __call__(self, inputs: Any) -> Any:
        return super().__call__(inputs)


class Arguments(layers.Layer):
    def build(self): ...
    def call(self, query, key, *, causal=True):
        return query

    def compute_output_shape(self, query_shape, key_shape):
        return query_shape

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def quantize(self, mode=None, type_check=True): ...
    def get_config(self):
        return {}

    @property
    def trainable_weights(self):
        return super().trainable_weights

    def count_params(self):
        return 3

    def compute_mask(self, inputs, previous_mask):
        return previous_mask


class Rest(layers.Layer):
    def build(self, a_shape, b_shape): ...
    def call(self, inputs, *others, **kw):
        return inputs

    def add_weight(self, *args, **kwargs):
        return super().add_weight(*args, **kwargs)

    def compute_mask(self, mask):
        return mask


class Cell(layers.Layer):
    state_size = 3
    output_size = 3

    def call(self, inputs, states):
        return inputs, [states[0]]

    def get_initial_state(self, batch_size=None):
        return [ops.zeros((batch_size or 1, 3))]


class Cell2(layers.SimpleRNNCell):
    def call(self, inputs, states, training=False):
        return inputs, states

    def get_initial_state(self, batch_size=None):
        return []


class MyLSTM(layers.LSTM):
    def call(self, sequences, initial_state=None, mask=None, training=False):
        return super().call(sequences, initial_state=initial_state)


class MyDense(layers.Dense):
    def build(self, input_shape):
        super().build(input_shape)

    def call(self, inputs, training=None):
        return super().call(inputs)


class MyConv(layers.Conv2D):
    def __init__(self, filters, kernel_size, **kwargs):
        super().__init__(filters, kernel_size, **kwargs)

    def call(self, inputs):
        return super().call(inputs)


class MyAttention(layers.MultiHeadAttention):
    def call(self, query, value, key=None, **kwargs):
        return query


class MyBN(layers.BatchNormalization):
    def call(self, inputs, training=None, mask=None):
        return inputs


class MyDrop(layers.Dropout):
    def call(self, inputs, training=False):
        return inputs


class MyWrap(layers.Wrapper):
    def call(self, inputs):
        return self.layer(inputs)


class MyMerge(layers.Add):
    def build(self, input_shape):
        super().build(input_shape)

    def call(self, inputs):
        return inputs[0]


class MyEmb(layers.Embedding):
    def call(self, inputs):
        return inputs

    def compute_mask(self, inputs, mask=None):
        return None


class KerasModel(keras.Model):
    def __init__(self, units=3, **kwargs):
        super().__init__(**kwargs)
        self.d = layers.Dense(units)
        self.tracker = metrics.Mean(name="loss")

    def call(self, inputs: Any, training: bool = False, mask: Any = None) -> Any:
        return self.d(inputs)

    def build(self, input_shape): ...
    def train_step(self, data):
        x, y = data
        return {"loss": 0.0}

    def test_step(self, data):
        return {}

    def predict_step(self, data):
        return self(data, training=False)

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return 0.0

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return {}

    @property
    def metrics(self):
        return [self.tracker]

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)

    def get_compile_config(self):
        return {}

    def reset_metrics(self): ...


class OwnModel(keras.Model):
    def train_step(self, state, data):
        return super().train_step(state, data)

    def test_step(self, state, data):
        return {}, state

    def predict_step(self, state, data):
        return data, state

    def compute_loss(self, x, y, y_pred):
        return 0.0

    def call(self, a, b):
        return a

    def compute_loss_and_updates(
        self,
        trainable_variables,
        non_trainable_variables,
        metrics_variables,
        x,
        y,
        sample_weight,
        training=False,
        optimizer_variables=None,
    ):
        return 0.0, ()


class Stack(keras.Sequential):
    def call(self, inputs, training=None, mask=None):
        return inputs

    def train_step(self, data):
        return {}


class OwnLoss(keras.Model):
    def compute_loss(self, y, y_pred, sample_weight=None):
        return 0.0


class Difference(losses.Loss):
    def __init__(self, factor: float = 1.0, name: str = "l"):
        super().__init__(name=name)

    def call(self, y_true: jax.Array, y_pred: jax.Array) -> jax.Array:
        return y_true - y_pred

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class WholeLoss(losses.Loss):
    def __call__(self, y_true, y_pred, sample_weight=None):
        return y_true


class Squares(losses.MeanSquaredError):
    def call(self, y_true, y_pred):
        return super().call(y_true, y_pred)


class Total(metrics.Metric):
    def __init__(self, name="me", **kwargs):
        super().__init__(name=name, **kwargs)
        self.total = self.add_variable(shape=(), initializer="zeros", name="total")

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total.assign_add(ops.sum(y_true))

    def result(self):
        return self.total

    def reset_state(self):
        self.total.assign(0.0)

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class Values(metrics.Metric):
    def update_state(self, values: Any) -> None: ...
    def result(self) -> jax.Array:
        return ops.zeros(())


class OwnMean(metrics.Mean):
    def update_state(self, values, sample_weight=None):
        super().update_state(values)

    def result(self):
        return super().result()


class Wrapped(metrics.MeanMetricWrapper):
    def update_state(self, y_true, y_pred, sample_weight=None): ...


class Several(metrics.Metric):
    def update_state(self, y_true, y_pred): ...
    def result(self):
        return {"a": 1.0}


class OwnPrecision(metrics.Precision):
    def update_state(self, y_true, y_pred, sample_weight=None): ...


class Hooks(callbacks.Callback):
    def on_train_begin(self, logs=None): ...
    def on_train_end(self, logs=None): ...
    def on_epoch_begin(self, epoch, logs=None): ...
    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        if logs and self.model:
            print(self.model.optimizer.learning_rate)

    def on_batch_begin(self, batch, logs=None): ...
    def on_batch_end(self, batch, logs=None): ...
    def on_train_batch_begin(self, batch, logs=None): ...
    def on_train_batch_end(self, batch, logs=None): ...
    def on_test_begin(self, logs=None): ...
    def on_test_end(self, logs=None): ...
    def on_test_batch_begin(self, batch, logs=None): ...
    def on_test_batch_end(self, batch, logs=None): ...
    def on_predict_begin(self, logs=None): ...
    def on_predict_end(self, logs=None): ...
    def on_predict_batch_begin(self, batch, logs=None): ...
    def on_predict_batch_end(self, batch, logs=None): ...
    def set_model(self, model): ...
    def set_params(self, params): ...


class Stop(callbacks.EarlyStopping):
    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)


class Keep(callbacks.ModelCheckpoint):
    def on_epoch_end(self, epoch, logs=None):
        super().on_epoch_end(epoch, logs)


class Own(optimizers.Optimizer):
    def build(self, variables):
        super().build(variables)

    def update_step(self, gradient, variable, learning_rate): ...
    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class OwnSGD(optimizers.SGD):
    def update_step(self, gradient, variable, learning_rate): ...


class Schedule(optimizers.schedules.LearningRateSchedule):
    def __init__(self, start):
        self.start = start

    def __call__(self, step):
        return self.start

    def get_config(self):
        return {"start": self.start}


class Start(initializers.Initializer):
    def __call__(self, shape, dtype=None, **kwargs):
        return np.ones(shape)

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class Draw(initializers.RandomInitializer):
    def __call__(self, shape, dtype=None):
        return np.ones(shape)


class Bound(constraints.Constraint):
    def __call__(self, w):
        return w

    def get_config(self):
        return {}


class Penalty(regularizers.Regularizer):
    def __call__(self, x):
        return ops.sum(x)

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


class Rows(keras.utils.PyDataset):
    def __init__(self, x, **kwargs):
        super().__init__(**kwargs)
        self.x = x

    def __len__(self):
        return 3

    def __getitem__(self, idx):
        return self.x[idx], self.x[idx]

    def on_epoch_end(self): ...


class Node(keras.Operation):
    def call(self, x):
        return x

    def compute_output_spec(self, x):
        return x


class Teach(keras.distillation.Distiller):
    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        return 0.0


class OtherNames1(losses.Loss):
    def call(self, targets, outputs):
        return targets


class OtherNames2(regularizers.Regularizer):
    def __call__(self, weights):
        return 0.0


class OtherNames3(constraints.Constraint):
    def __call__(self, weights):
        return weights


class OtherNames4(optimizers.schedules.LearningRateSchedule):
    def __call__(self, count):
        return 0.1


class OtherNames5(initializers.Initializer):
    def __call__(self, size, dtype="float32"):
        return np.ones(size)


class OtherNames6(keras.utils.PyDataset):
    def __len__(self):
        return 1

    def __getitem__(self, batch_number: int):
        return 0


class OtherNames7(optimizers.Optimizer):
    def update_step(self, grad, var, lr): ...
    def build(self, var_list): ...


class OtherNames8(metrics.Metric):
    def update_state(self, labels, scores, weights=None): ...
    def result(self):
        return 0


class OtherNames9(keras.Model):
    def train_step(self, batch):
        return {}

    def test_step(self, batch):
        return {}

    def predict_step(self, batch):
        return batch

    def compute_metrics(self, inputs, targets, outputs, weights=None):
        return {}
