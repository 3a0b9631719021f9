"""Every name of ``keras.utils`` is here, or left out for a reason."""

from tests.golden import keras

from exburn import utils

# Names of keras.utils that ExBurn leaves out, and why.
LEFT_OUT = {}


def test_every_name_of_keras_utils_is_here_or_left_out_for_a_reason():
    names = {n for n in dir(keras.utils) if not n.startswith("_")}
    assert {n for n in names if not hasattr(utils, n)} == set(LEFT_OUT)
