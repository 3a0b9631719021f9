import pytest

import exburn


@pytest.fixture(autouse=True)
def precision_as_before():
    """A test may set the process' policy; the next one finds the default."""
    policy, matmul = exburn.get_precision(), exburn.get_matmul_precision()
    yield
    exburn.set_precision(policy)
    exburn.set_matmul_precision(matmul)
