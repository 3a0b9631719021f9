"""``ray.deployment``: arguments, what Ray is told, and two replicas that answer."""

import asyncio
import importlib.util
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, MissingDependencyError
from exburn.serving.ray import deployment

ROOT = Path(__file__).parents[2]
# What ``ray[serve]`` brings; ``ray`` alone has the module, which cannot be imported.
NO_SERVE = any(importlib.util.find_spec(name) is None for name in ("ray", "fastapi"))
NEEDED = ("httpx", "starlette", "uvicorn", "httptools", "orjson", "prometheus_client")
needs_server = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, NEEDED)), reason="pip install exburn[server]"
)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"replicas": 0}, "replicas must be an integer ≥ 1"),
        ({"replicas": (3, 2)}, "the least and the most"),
        ({"replicas": (0, 0)}, "the least and the most"),
        ({"replicas": (1, 2, 3)}, "the least and the most"),
        ({"requests_per_replica": 0}, "requests_per_replica must be an integer ≥ 1"),
        ({"gpus_per_replica": 0.5}, "gpus_per_replica must be an integer ≥ 0"),
        ({"cpus_per_replica": -1}, "cpus_per_replica must be an integer ≥ 0"),
    ],
)
def test_arguments_that_can_never_work(options, reason):
    with pytest.raises(ArgumentError, match=reason):
        deployment(lambda: None, **options)


def test_what_is_no_server():
    with pytest.raises(ArgumentError, match="server must be a Server"):
        deployment({"m": 7})


@pytest.mark.skipif(not NO_SERVE, reason="Ray Serve is installed")
def test_without_ray_the_error_says_how_to_install_it():
    with pytest.raises(MissingDependencyError, match=r"pip install 'exburn\[ray\]'"):
        deployment(lambda: None)


@pytest.fixture
def told(monkeypatch):
    """What a stand-in for Ray Serve is told."""
    told = SimpleNamespace()

    def decorate(**options):
        told.options = options
        return lambda replica: SimpleNamespace(bind=lambda *args: (replica, args))

    module = ModuleType("ray.serve")
    module.deployment, module.ingress = decorate, lambda: lambda replica: replica
    monkeypatch.setitem(sys.modules, "ray", ModuleType("ray"))
    monkeypatch.setitem(sys.modules, "ray.serve", module)
    return told


def test_ray_is_told_how_many_replicas_and_what_each_needs(told):
    deployment(lambda: None, replicas=3)
    assert told.options == {
        "name": "exburn",
        "num_replicas": 3,
        "max_ongoing_requests": 256,
        "ray_actor_options": {
            "num_cpus": 1,
            "num_gpus": 0,
            "runtime_env": {"env_vars": {"JAX_PLATFORMS": "cpu"}},
        },
    }
    resources = {"ray_actor_options": {"memory": 2**30}, "max_queued_requests": 9}
    options = {"requests_per_replica": 64, "gpus_per_replica": 1, "name": "own"}
    deployment(lambda: None, replicas=(0, 4), **options, **resources)
    actor = told.options.pop("ray_actor_options")
    assert (actor["num_gpus"], actor["memory"]) == (1, 2**30)
    assert actor["runtime_env"]["env_vars"]["JAX_PLATFORMS"] == "cuda,cpu"
    assert told.options == {
        "name": "own",
        "max_ongoing_requests": 64,
        "max_queued_requests": 9,
        "autoscaling_config": {
            "min_replicas": 0,
            "max_replicas": 4,
            "target_ongoing_requests": 32,
        },
    }


def test_a_replica_makes_its_server_and_is_replaced_when_that_does_not_answer(told):
    health = SimpleNamespace(all_ready=lambda: False)
    server = SimpleNamespace(asgi=lambda: "application", _health=health)
    for given in (server, lambda: server):
        make, arguments = deployment(given)
        replica = make(*arguments)
        assert replica.__serve_build_asgi_app__() == "application"
        with pytest.raises(RuntimeError, match="canaries"):
            asyncio.run(replica.check_health())
    health.all_ready = lambda: True
    asyncio.run(replica.check_health())


@needs_server
def test_a_server_is_sent_as_its_models_and_options():
    model = exburn.Sequential([exburn.Input((3,), name="x"), layers.Dense(2)])
    options = {"batch_size": 2, "padding": [2], "max_rows": 7, "api_keys": ["k" * 20]}
    server = exburn.serving.Server({"m": {"a": model}}, **options)
    server.load("m", model, version="b")
    again = pickle.loads(pickle.dumps(server))
    assert again.models == {"m": ["a", "b"]}
    assert again._options == server._options and again._options.max_rows == 7
    x = np.ones((1, 3), np.float32)
    served = again._registry.get("m").serving
    np.testing.assert_array_equal(served(x), model.predict(x, verbose=0))
    served.close()
    with exburn.Serving(model, 2, padding=[2]) as serving:
        own = exburn.serving.Server({"m": serving})
        with pytest.raises(ArgumentError, match="'m' stays in this process"):
            pickle.dumps(own)
    server.close(), again.close()


@needs_server
@pytest.mark.skipif(NO_SERVE, reason="no Ray Serve: pip install 'exburn[ray]'")
def test_two_replicas_answer_behind_a_prefix():
    paths = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    settings = {"JAX_PLATFORMS": "cpu", "RAY_USAGE_STATS_ENABLED": "0"}
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "serving" / "ray_run.py")],
        env=os.environ | {"PYTHONPATH": paths} | settings,
        capture_output=True,
        text=True,
        timeout=240,
    )
    lines = [s for s in done.stdout.splitlines() if s.startswith("RESULT ")]
    assert lines, done.stderr[-3000:]
    found = json.loads(lines[-1][7:])
    assert found["replicas"] == {"RUNNING": 2}
    assert found["ready"] == [200, {"ready": True}]  # probes have no key
    assert (found["statuses"], found["bad"], found["no key"]) == ([200], 400, 401)
    for data in found["data"]:
        np.testing.assert_allclose(data, found["expected"], atol=1e-6)
