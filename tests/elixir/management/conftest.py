import pytest
from tests.elixir.networks import make


@pytest.fixture(scope="module")
def model():
    return make()
