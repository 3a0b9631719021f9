"""Constructors of callbacks take Keras' arguments."""

import inspect

from tests.golden import keras

import exburn.callbacks


def test_constructors_take_keras_arguments():
    for name in (
        "BackupAndRestore CSVLogger EarlyStopping LambdaCallback LearningRateScheduler "
        "ModelCheckpoint OrbaxCheckpoint ProgbarLogger ReduceLROnPlateau TerminateOnNaN"
    ).split():
        theirs = inspect.signature(getattr(keras.callbacks, name)).parameters.values()
        ours = inspect.signature(getattr(exburn.callbacks, name)).parameters
        for parameter in theirs:
            if parameter.kind is not parameter.VAR_KEYWORD:
                assert ours[parameter.name].default == parameter.default, (
                    name,
                    parameter,
                )
