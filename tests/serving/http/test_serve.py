import importlib.util

import pytest

import exburn
from exburn import layers
from exburn.errors import MissingDependencyError


@pytest.fixture
def model():
    return exburn.Sequential([exburn.Input((3,)), layers.Dense(2)], name="iris")


def test_serve_runs_a_server_of_the_model(model, monkeypatch):
    pytest.importorskip("starlette")
    pytest.importorskip("uvicorn")
    served = []
    monkeypatch.setattr(exburn.serving.Server, "run", lambda self: served.append(self))
    model.serve(8123, batch_size=1, timeout="1 s")
    model.serve(name="other", batch_size=1)
    assert [server.models for server in served] == [{"iris": ["1"]}, {"other": ["1"]}]
    assert [server.port for server in served] == [8123, 8000]
    for server in served:
        server.close()


def test_without_its_packages_it_says_what_installs_them(model, monkeypatch):
    def absent(name):
        raise ImportError(name)

    import exburn.serving

    monkeypatch.delitem(vars(exburn.serving), "Server", raising=False)
    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(MissingDependencyError, match=r"pip install 'exburn\[server\]'"):
        _ = exburn.serving.Server
