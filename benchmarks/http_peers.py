"""The servers that are compared, each of the same model, as its documentation says.

    python benchmarks/http_peers.py NAME PORT WORK

What computes is the same in all of them: one compiled program for each of a few numbers
of rows. Where a server forms batches, it may take 32 rows, and does not wait for them.
Access logs are off.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["PEERS", "WORKS", "asked", "make_model"]

MOST = 32  # rows of a batch
WORKS = {  # numbers in a row, widths of the layers
    "small": (8, (16, 3)),
    "mlp": (784, (1024, 1024, 10)),
    "long": (100_000, (16, 3)),  # a request is 1 MB of JSON
}


def make_model(work: str) -> Any:
    """A row of numbers → scores, by dense layers."""
    import exburn
    from exburn import layers

    size, (*hidden, outputs) = WORKS[work]
    model = exburn.Sequential(
        [
            exburn.Input((size,), name="x"),
            *(layers.Dense(units, activation="relu") for units in hidden),
            layers.Dense(outputs, name="y"),
        ]
    )
    model.compile(seed=0)
    return model


def make_program(work: str) -> Callable[[np.ndarray], np.ndarray]:
    """The model as one writes it by hand: compiled for powers of two, padded."""
    import jax

    from exburn.training.module import SplitModule

    split = SplitModule(make_model(work))
    groups, width = split.read(), WORKS[work][0]

    @jax.jit
    def program(groups: Any, x: Any) -> Any:
        key = jax.random.key(0)
        return split.forward(groups, x, training=False, key=key)[0]

    def predict(x: np.ndarray) -> np.ndarray:
        rows = len(x)
        size = 1 << (rows - 1).bit_length()
        if size > rows:
            x = np.concatenate([x, np.zeros((size - rows, width), np.float32)])
        return np.asarray(program(groups, x))[:rows]

    for i in range(MOST.bit_length()):
        predict(np.zeros((1 << i, width), np.float32))
    return predict


# ---------------------------------------------------------------------- servers
def exburn(port: int, work: str) -> None:
    """Ours."""
    from exburn.serving import Server

    Server({"m": make_model(work)}, port=port, log_level="WARNING", drain=0).run()


def starlette(port: int, work: str) -> None:
    """No model: a route that reads its body, and says always the same."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import Response
    from starlette.routing import Route

    async def infer(request: Any) -> Response:
        await request.body()
        return Response(b'{"outputs":[1,2,3]}', media_type="application/json")

    app = Starlette(routes=[Route("/infer", infer, methods=["POST"])])
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def fastapi(port: int, work: str) -> None:
    """FastAPI by hand: a schema, and the program called in the route."""
    import fastapi
    import pydantic
    import uvicorn

    predict, app = make_program(work), fastapi.FastAPI()

    class Question(pydantic.BaseModel):
        data: list[list[float]]

    class Answer(pydantic.BaseModel):
        data: list[list[float]]

    # Not strings, as annotations are here: FastAPI looks for names in the module.
    async def infer(question):
        return Answer(data=predict(np.array(question.data, np.float32)).tolist())

    infer.__annotations__ = {"question": Question, "return": Answer}
    app.post("/infer")(infer)
    uvicorn.run(app, port=port, log_level="warning", access_log=False)


def litserve(port: int, work: str) -> None:
    """Its processes import this file, and ``Scores`` from it."""
    import litserve

    api = Scores(max_batch_size=MOST, batch_timeout=0.001, api_path="/infer")
    server = litserve.LitServer(api, accelerator="cpu", timeout=False)
    server.run(
        host="127.0.0.1",
        port=port,
        log_level="warning",
        access_log=False,
        generate_client_file=False,
    )


def litserve_scores() -> Any:
    import litserve

    class Scores(litserve.LitAPI):
        def setup(self, device):
            self.predict_rows = make_program(os.environ["HTTP_WORK"])

        def decode_request(self, request):  # annotations would be a schema
            return np.array(request["data"][0], np.float32)

        def batch(self, inputs):
            return np.stack(inputs)

        def predict(self, x):
            return self.predict_rows(x)

        def unbatch(self, output):
            return list(output)

        def encode_response(self, output):
            return {"data": [output.tolist()]}

    Scores.__qualname__ = "Scores"
    return Scores


def bentoml(port: int, work: str) -> None:
    """Started by its own command, which imports ``Scores`` from this file."""
    folder, file = os.path.split(os.path.abspath(__file__))
    service = f"{file.removesuffix('.py')}:Scores"
    words = ["serve", service, "--working-dir", folder, "--host", "127.0.0.1"]
    os.environ["BENTOML_DO_NOT_TRACK"] = "true"
    os.environ["PYTHONPATH"] = os.pathsep.join([folder, os.environ["PYTHONPATH"]])
    command = [sys.executable, "-m", "bentoml", *words, "--port", str(port)]
    os.execv(sys.executable, command)


def bentoml_scores() -> Any:
    import bentoml

    class Scores:
        def __init__(self) -> None:
            self.predict_rows = make_program(os.environ["HTTP_WORK"])

        def infer(self, data):
            return self.predict_rows(np.asarray(data, np.float32))

    Scores.infer.__annotations__ = {"data": np.ndarray, "return": np.ndarray}
    batched = bentoml.api(batchable=True, max_batch_size=MOST, max_latency_ms=60_000)
    Scores.infer = batched(Scores.infer)
    off = {"access": {"enabled": False}}
    return bentoml.service(workers=1, logging=off, traffic={"timeout": 60})(Scores)


def kserve(port: int, work: str) -> None:
    import kserve

    predict_rows = make_program(work)

    class Scores(kserve.Model):
        def __init__(self) -> None:
            super().__init__("m")
            self.ready = True

        async def predict(self, payload: Any, *_: Any, **__: Any) -> Any:
            y = predict_rows(payload.inputs[0].as_numpy())
            output = kserve.InferOutput("y", list(y.shape), "FP32")
            output.set_data_from_numpy(y, binary_data=False)
            return kserve.InferResponse(payload.id or "1", "m", [output])

    server = kserve.ModelServer(
        http_port=port, enable_grpc=False, enable_latency_logging=False, workers=1
    )
    logging.getLogger("uvicorn.access").disabled = True
    server.start([Scores()])


def ray(port: int, work: str) -> None:
    from ray import serve
    from starlette.responses import JSONResponse

    @serve.deployment(max_ongoing_requests=1024, ray_actor_options={"num_cpus": 0})
    class Scores:
        def __init__(self) -> None:
            self.predict_rows = make_program(work)

        @serve.batch(max_batch_size=MOST, batch_wait_timeout_s=0)
        async def infer(self, rows: list) -> list:
            return list(self.predict_rows(np.concatenate(rows)))

        async def __call__(self, request: Any) -> Any:
            rows = np.array((await request.json())["data"], np.float32)
            return JSONResponse({"data": [(await self.infer(rows)).tolist()]})

    import ray as cluster

    cluster.init(include_dashboard=False, logging_level=logging.ERROR)
    off = {"enable_access_log": False}
    serve.start(http_options={"host": "127.0.0.1", "port": port}, logging_config=off)
    serve.run(Scores.bind(), route_prefix="/infer", logging_config=off)
    while True:
        time.sleep(60)


# ---------------------------------------------------------------------- requests
def asked(peer: str, row: np.ndarray) -> tuple[str, bytes, dict[str, str]]:
    """Path, body and headers of a request of one row."""
    x, kind = row[None], {"Content-Type": "application/json"}
    if peer == "exburn-binary":
        entry = {"name": "x", "datatype": "FP32", "shape": x.shape}
        entry["parameters"] = {"binary_data_size": x.nbytes}
        parameters = {"binary_data_output": True}
        head = json.dumps({"inputs": [entry], "parameters": parameters}).encode()
        kind = {"Inference-Header-Content-Length": str(len(head))}
        return "/v2/models/m/infer", head + x.tobytes(), kind
    if peer in ("exburn", "kserve"):
        entry = {"name": "x", "datatype": "FP32", "shape": x.shape}
        entry["data"] = row.tolist()
        body = json.dumps({"inputs": [entry]}).encode()
        return "/v2/models/m/infer", body, kind
    return "/infer", json.dumps({"data": x.tolist()}).encode(), kind


PEERS = {
    "exburn": exburn,
    "starlette": starlette,
    "fastapi": fastapi,
    "litserve": litserve,
    "bentoml": bentoml,
    "kserve": kserve,
    "ray": ray,
}

# Classes that the processes of a server look up in this file.
_SCORES = {"bentoml": bentoml_scores, "litserve": litserve_scores}
if __name__ == "__main__":
    os.environ["HTTP_PEER"], os.environ["HTTP_WORK"] = sys.argv[1], sys.argv[3]
if (peer := os.environ.get("HTTP_PEER")) in _SCORES:
    Scores = _SCORES[peer]()
if __name__ == "__main__":
    PEERS[sys.argv[1]](int(sys.argv[2]), sys.argv[3])
