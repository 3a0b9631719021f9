"""Class weights, as the sample weights that they stand for."""

import numpy as np


def test_class_weights_equal_the_sample_weights_they_stand_for(blobs, classifier):
    x, y = blobs
    table = {0: 0.5, 1: 2.0, 2: 1.0}
    rows = np.array([table[int(c)] for c in y], np.float32)
    a, b = classifier(), classifier()
    given = {0.0: 0.5, np.int64(1): 2.0, 2: 1.0, -1: 9.0}  # no row is of class -1
    one = a.fit(x, y, class_weight=given, epochs=2, verbose=0).history
    two = b.fit(x, y, sample_weight=rows, epochs=2, verbose=0).history
    assert one == two
