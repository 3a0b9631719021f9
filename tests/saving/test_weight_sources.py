"""Files of weights of any format, told apart by what they begin with."""

import pickle

import numpy as np
import pytest
from safetensors.numpy import save

from exburn.errors import ModelFormatError
from exburn.saving import read_weights


@pytest.mark.parametrize("low", [2, 3, 4, 5])
def test_the_size_of_a_header_is_not_taken_for_a_pickle(tmp_path, low):
    values = np.arange(6, dtype=np.float32)
    data = save({"kernel": values})
    size = int.from_bytes(data[:8], "little")
    longer = (low << 8) + 0x80  # which pickles of these versions begin with
    header = data[8 : 8 + size].ljust(longer)
    path = tmp_path / "w.safetensors"
    path.write_bytes(longer.to_bytes(8, "little") + header + data[8 + size :])
    with read_weights(path) as found:
        np.testing.assert_array_equal(found["kernel"], values)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_a_pickle_is_refused(tmp_path, protocol):
    path = tmp_path / "w.pkl"
    path.write_bytes(pickle.dumps({"kernel": np.ones(3)}, protocol))
    with pytest.raises(ModelFormatError, match="pickle"):
        with read_weights(path):
            pass
