import asyncio
import importlib.util

import numpy as np
import pytest

import exburn
from exburn import Serving, layers, serving

NEEDED = ("httpx", "starlette", "uvicorn", "httptools", "orjson", "prometheus_client")
if not all(map(importlib.util.find_spec, NEEDED)):  # the extra "server", and httpx
    collect_ignore_glob = ["test_*.py"]

FAST = {"batch_size": 4, "padding": [4], "burst": 1}  # a single program


class Client:
    """Asks an ASGI application, without a network.

    Args:
        app: The application.
    """

    def __init__(self, app):
        self.app = app

    def __call__(self, method, path, **options):
        return asyncio.run(self.ask(method, path, **options))

    async def ask(self, method, path, **options):
        import httpx

        transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as c:
            return await c.request(method, path, **options)

    def infer(self, x, model="mlp", path="", **message):
        """Posts one array as JSON."""
        body = {"inputs": [tensor("x", x)], **message}
        return self("POST", f"/v2/models/{model}{path}/infer", json=body)


def tensor(name, array, datatype="FP32", **changes):
    """A tensor as the protocol writes it in JSON."""
    array = np.asarray(array)
    return {
        "name": name,
        "datatype": datatype,
        "shape": list(array.shape),
        "data": array.reshape(-1).tolist(),
        **changes,
    }


@pytest.fixture(scope="session")
def model():
    """Of 3 numbers ``x``, 2 ``scores``."""
    model = exburn.Sequential(
        [exburn.Input((3,), name="x"), layers.Dense(2, name="scores")]
    )
    model.compile(seed=0)
    return model


@pytest.fixture(scope="session")
def mlp(model):
    with Serving(model, batch_timeout=0, **FAST) as serving:
        yield serving


@pytest.fixture(scope="session")
def several():
    """Two inputs and two outputs, of several dtypes."""
    ids = exburn.Input((2,), dtype="int32", name="ids")
    flags = exburn.Input((1,), dtype="bool", name="flags")
    embedded = layers.Flatten()(layers.Embedding(10, 2, name="table")(ids))
    model = exburn.Model(
        {"ids": ids, "flags": flags},
        {"both": embedded, "not": exburn.ops.logical_not(flags)},
    )
    with Serving(model, batch_timeout=0, **FAST) as serving:
        yield serving


@pytest.fixture(scope="session")
def server(mlp, several):
    return serving.Server(
        {"mlp": mlp, "several": several}, max_body="64 KB", max_rows=50
    )


@pytest.fixture(scope="session")
def client(server):
    return Client(server.asgi())


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    return lambda n: rng.standard_normal((n, 3)).astype(np.float32)
