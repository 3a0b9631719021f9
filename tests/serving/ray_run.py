"""A server as two replicas of Ray Serve, behind a prefix: prints what clients saw.

python tests/serving/ray_run.py
"""

import json
import socket
import urllib.error
import urllib.request

import numpy as np
import ray
from ray import serve

import exburn
from exburn import layers
from exburn.serving.ray import deployment

KEY = "k" * 20


def ask(url, x=None, key=KEY):
    """Status, and what came as JSON."""
    body = None
    if x is not None:
        entry = {"name": "x", "datatype": "FP32", "shape": x.shape, "data": x.tolist()}
        body = json.dumps({"inputs": [entry]}).encode()
    request = urllib.request.Request(url, body, {"x-api-key": key})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def main():
    memory = 80 * 2**20
    ray.init(num_cpus=1, include_dashboard=False, object_store_memory=memory)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    serve.start(http_options={"host": "127.0.0.1", "port": port})
    model = exburn.Sequential([exburn.Input((3,), name="x"), layers.Dense(2)])
    server = exburn.serving.Server({"m": model}, batch_size=4, api_keys=[KEY])
    application = deployment(server, replicas=2, cpus_per_replica=0)
    serve.run(application, route_prefix="/models")
    replicas = serve.status().applications["default"].deployments["exburn"]
    url = f"http://127.0.0.1:{port}/models/v2"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    answers = [ask(f"{url}/models/m/infer", x) for _ in range(10)]
    found = {
        "replicas": replicas.replica_states,
        "ready": ask(f"{url}/health/ready", key=""),
        "statuses": sorted({status for status, _ in answers}),
        "data": [answer["outputs"][0]["data"] for _, answer in answers],
        "expected": model.predict(x, verbose=0).ravel().tolist(),
        "bad": ask(f"{url}/models/m/infer", x[:, :2])[0],
        "no key": ask(f"{url}/models/m/infer", x, key="")[0],
    }
    serve.shutdown()
    ray.shutdown()
    print("RESULT", json.dumps(found))


if __name__ == "__main__":
    main()
