"""The names that Keras code asks ``keras.utils.legacy`` for."""

from exburn.legacy.saving import deserialize_keras_object, serialize_keras_object

__all__ = ["deserialize_keras_object", "serialize_keras_object"]
