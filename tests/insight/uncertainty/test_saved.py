"""Predictors in one file with their models, and behind a server."""

from __future__ import annotations

import importlib.util
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.command_line.main import main
from exburn.core.lazy_names import load_predictor
from exburn.errors import ArgumentError, ModelFormatError
from exburn.insight.uncertainty.conformal import ConformalPredictor
from exburn.insight.uncertainty.predictor import Predictor
from exburn.insight.uncertainty.scaling import ScaledPredictor
from exburn.insight.uncertainty.uncertainty import KINDS
from exburn.saving.beside import read_beside

NEEDED = ("httpx", "starlette", "uvicorn", "httptools", "orjson", "prometheus_client")
needs_server = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, NEEDED)), reason="pip install exburn[server]"
)
FAST = {"batch_size": 4, "padding": [4], "burst": 1, "batch_timeout": "0 s"}
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 4)).astype(np.float32)
Y = X[:, :3].argmax(1)
NEW = RNG.normal(size=(6, 4)).astype(np.float32)


@pytest.fixture(scope="module")
def model():
    model = exburn.Sequential(
        [
            exburn.Input((4,), name="x"),
            layers.BatchNormalization(),
            layers.Dense(3, "softmax"),
        ],
        name="kinds",
    )
    model.compile("adam", "cross_entropy", seed=0)
    model.fit(X, Y, epochs=3, verbose=0)
    return model


@pytest.fixture(scope="module")
def sure(model):
    return model.uncertainty(X, Y, score="aps", by_class=True)


@pytest.fixture
def file(sure, tmp_path):
    return sure.save(tmp_path / "kinds", with_model=True)


def test_one_file_holds_both(file, sure, model):
    assert file.name == "kinds.exburn"
    for again in (load_predictor(file), ConformalPredictor.load(file)):
        assert str(again) == str(sure)
        expected = sure.predict(NEW, 0.8)
        found = again.predict(NEW, 0.8)
        np.testing.assert_array_equal(found.sets, expected.sets)
        np.testing.assert_array_equal(found.mean, expected.mean)
    plain = exburn.load_model(file)
    np.testing.assert_array_equal(
        plain.predict(NEW, verbose=0), model.predict(NEW, verbose=0)
    )
    plain.fit(X, Y, verbose=0)  # with its optimizer
    with pytest.raises(ArgumentError, match="not those"):
        again.of(plain)


def test_scaling_lies_beside_a_model_too(model, tmp_path):
    scaled = model.uncertainty(X, Y, method="temperature")
    path = scaled.save(tmp_path / "scaled.exburn", with_model=True)
    again = load_predictor(path)
    assert isinstance(again, ScaledPredictor)
    np.testing.assert_array_equal(again.predict(NEW).mean, scaled.predict(NEW).mean)
    with pytest.raises(ModelFormatError, match="no conformal predictor"):
        ConformalPredictor.load(path)


def test_every_kind_of_predictor_is_read():
    def below(kind):
        return {kind, *(one for sub in kind.__subclasses__() for one in below(sub))}

    assert set(KINDS) == {k for k in below(Predictor) if hasattr(k, "kind")}


def test_other_files_hold_no_predictor_with_a_model(model, sure, tmp_path):
    model.save(tmp_path / "plain.exburn")
    small = sure.save(tmp_path / "sure.safetensors")
    for path in (tmp_path / "plain.exburn", small):
        assert read_beside(path, "test") is None
        with pytest.raises(ModelFormatError, match="no predictor"):
            load_predictor(path)
    with pytest.raises(ModelFormatError):
        ConformalPredictor.load(tmp_path / "plain.exburn")
    with pytest.raises(ArgumentError):
        load_predictor(tmp_path / "none.exburn")


def test_a_flipped_bit_is_found(file):
    data = bytearray(file.read_bytes())
    start = data.index(b'"/beside/scores"')
    entry = json.loads(b"{" + data[start : data.index(b"}", start) + 1] + b"}")
    begin = entry["/beside/scores"]["data_offsets"][0]
    begin += 8 + int.from_bytes(data[:8], "little")
    for place in (begin, start + 3):
        broken = bytearray(data)
        broken[place] ^= 1
        file.write_bytes(broken)
        with pytest.raises(ModelFormatError):
            load_predictor(file)


def test_other_weights_are_not_saved(model, tmp_path):
    clone = model.clone()
    sure = clone.uncertainty(X, Y)
    clone.set_weights([w + 1 for w in clone.get_weights()])
    for use in (
        lambda: sure.save(tmp_path / "a.exburn", with_model=True),
        sure.as_endpoint,
    ):
        with pytest.raises(ArgumentError, match="not those"):
            use()
    assert not list(tmp_path.iterdir())


def test_it_goes_to_other_processes(sure):
    again = pickle.loads(pickle.dumps(sure))
    np.testing.assert_array_equal(again.predict(NEW).sets, sure.predict(NEW).sets)


def ask(server, message, rows=NEW):
    from tests.serving.http.conftest import Client, tensor

    body = {"inputs": [tensor("x", rows)], **message}
    answer = Client(server.asgi())("POST", "/v2/models/kinds/infer", json=body)
    return answer.status_code, answer.json()


def arrays(answer):
    return {
        one["name"]: np.reshape(one["data"], one["shape"]) for one in answer["outputs"]
    }


@needs_server
def test_a_server_answers_sets(file, sure):
    with exburn.serving.Server({"kinds": file}, **FAST) as server:
        for message, level in (({}, 0.9), ({"parameters": {"level": 0.6}}, 0.6)):
            status, answer = ask(server, message)
            assert status == 200
            found, expected = arrays(answer), sure.predict(NEW, level)
            np.testing.assert_array_equal(found["sets"], expected.sets)
            np.testing.assert_allclose(found["mean"], expected.mean, atol=1e-6)
        status, answer = ask(server, {"outputs": [{"name": "sets"}]})
        assert [one["datatype"] for one in answer["outputs"]] == ["BOOL"]
        for level in (0.999, "much", 2, None):
            status, answer = ask(server, {"parameters": {"level": level}})
            assert status == 400 and "level" in answer["error"]
        from tests.serving.http.conftest import Client

        about = Client(server.asgi())("GET", "/v2/models/kinds").json()
        assert [one["name"] for one in about["outputs"]] == ["mean", "sets"]
        assert about["outputs"][1]["shape"] == [-1, 3]


def posteriors(model):
    other = model.clone()
    other.set_weights([w + 0.3 for w in model.get_weights()])
    members = [model, other]
    yield model.uncertainty(X, Y, method="laplace")
    link = {"link": "monte_carlo", "samples": 20, "seed": 3}
    yield model.uncertainty(X, Y, method="laplace", **link)
    yield model.uncertainty(X, Y, method="swag", epochs=2, samples=3)
    yield model.uncertainty(method="ensemble", members=members)
    inputs = exburn.Input((4,), name="x")
    hidden = layers.Dropout(0.5)(layers.Dense(6, "relu")(inputs))
    thinned = exburn.Model(inputs, layers.Dense(3, "softmax")(hidden), name="kinds")
    yield thinned.uncertainty(method="dropout", samples=4, seed=5)


@needs_server
def test_a_server_answers_what_weights_may_be(model, tmp_path):
    for sure in posteriors(model):
        path = sure.save(tmp_path / "kinds.exburn", with_model=True)
        assert exburn.load_model(path).name == "kinds"
        expected = sure.predict(NEW, 0.7)
        with exburn.serving.Server({"kinds": path}, **FAST) as server:
            whole, alone = [
                arrays(ask(server, {"parameters": {"level": 0.7}}, rows)[1])
                for rows in (NEW, NEW[4:5])
            ]
        for name in ("mean", "sets", "spread"):
            found = whole[name]
            np.testing.assert_allclose(found, getattr(expected, name), atol=1e-6)
            np.testing.assert_allclose(alone[name], found[4:5], atol=1e-6)
        again = load_predictor(path)
        np.testing.assert_array_equal(again.predict(NEW).mean, expected.mean)


@needs_server
def test_a_server_answers_intervals_of_values_by_weights(tmp_path):
    inputs = exburn.Input((4,), name="x")
    two = {
        "a": layers.Dense(1, name="a")(inputs),
        "b": layers.Dense(2, name="b")(inputs),
    }
    model = exburn.Model(inputs, two, name="kinds")
    model.compile("sgd", "mse", seed=0)
    y = {"a": X[:, :1], "b": X[:, :2] + RNG.normal(size=(60, 2))}
    sure = model.uncertainty(X, y, method="laplace", output="b")
    path = sure.save(tmp_path / "kinds.exburn", with_model=True)
    with exburn.serving.Server({"kinds": path}, **FAST) as server:
        found, expected = arrays(ask(server, {})[1]), sure.predict(NEW)
    assert found["sets"].shape == (6, 2, 2)
    np.testing.assert_allclose(found["sets"], expected.sets, atol=1e-5)
    np.testing.assert_allclose(found["spread"], expected.spread, atol=1e-5)


@needs_server
def test_a_server_answers_intervals(tmp_path):
    dense = layers.Dense(1, kernel_initializer="ones")
    model = exburn.Sequential([exburn.Input((4,), name="x"), dense], name="kinds")
    y = X.sum(1, keepdims=True) + RNG.normal(size=(60, 1))
    sure = model.uncertainty(X, y)
    with exburn.serving.Server({"kinds": sure}, **FAST) as server:
        found = arrays(ask(server, {})[1])
    expected = sure.predict(NEW)
    np.testing.assert_allclose(found["sets"], expected.sets, atol=1e-5)
    assert found["sets"].shape == (6, 1, 2)
    by_function = model.uncertainty(
        X, y, score="normalized", spread=lambda x: abs(x[:, :1]) + 1
    )
    with pytest.raises(ArgumentError, match="cannot be served"):
        exburn.serving.Server({"kinds": by_function}, **FAST)


@needs_server
def test_a_server_takes_what_an_endpoint_says_of_a_file(file, sure):
    endpoint = exburn.serving.Endpoint(file, images=False)
    with exburn.serving.Server({"kinds": endpoint}, **FAST) as server:
        found = arrays(ask(server, {})[1])
    np.testing.assert_array_equal(found["sets"], sure.predict(NEW).sets)
    with pytest.raises(ArgumentError, match="belong together"):
        exburn.serving.Endpoint(file, answer=lambda outputs, parameters: {})


@needs_server
def test_the_command_refuses_to_change_the_weights(file, capsys):
    for words in (["--quantize", "int8"], ["--slots", "2"]):
        assert main(["serve", str(file), *words]) != 0
        assert "sets for its model as it is" in capsys.readouterr().err


def test_the_other_commands_read_the_file(file, capsys):
    assert main(["info", str(file)]) == 0
    assert main(["verify", str(file)]) == 0
    assert Path(file).exists() and "kinds" in capsys.readouterr().out
