"""Decoders of each family beside what ``transformers`` has computed (``make.py``)."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from exburn.applications import Llama, from_pretrained
from exburn.applications.decoder import Decoder
from exburn.applications.families import FAMILIES
from exburn.losses import SparseCategoricalCrossentropy

HERE = Path(__file__).parent
PROMPTS = (3, 7, 5)


@pytest.fixture(scope="module")
def recorded():
    """Model and recorded arrays of each family, made when they are first asked for."""
    cases = {}

    def case(name):
        if name not in cases:
            arrays = dict(np.load(HERE / name / "expected.npz"))
            cases[name] = from_pretrained(HERE / name), arrays
        return cases[name]

    return case


def close(found, expected, tolerance=1e-5):
    """Whether all are near, measured by the largest."""
    apart = np.abs(np.asarray(found) - expected).max()
    assert apart <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("name", FAMILIES)
def test_scores_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    assert type(model) is (Llama if name in ("llama", "mistral") else Decoder)
    assert model.family.model_type == name
    close(model(expected["ids"]), expected["logits"])


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    ids, loss = expected["ids"], SparseCategoricalCrossentropy(from_logits=True)
    weights = model.trainable_variables

    def score(values):
        logits, _ = model.stateless_call(values, [], ids)
        return loss(ids[:, 1:], logits[:, :-1])

    values = jax.grad(score)([weight.value for weight in weights])
    paths = [weight.path.removeprefix(f"{model.name}/") for weight in weights]
    gradients = dict(zip(paths, map(np.asarray, values), strict=True))
    count = 0
    for move in model.weight_rules("transformers").save_plan(gradients):
        parts = tuple(gradients[target] for target in move.targets)
        tensors = move.transform.save(parts, len(move.sources))
        for tensor, source in zip(tensors, move.sources, strict=True):
            norm = expected[f"gradient/{source}"]
            assert np.linalg.norm(tensor) == pytest.approx(norm, rel=1e-4), source
            count += 1
    assert count == sum(path.startswith("gradient/") for path in expected)


@pytest.mark.parametrize("name", FAMILIES)
def test_texts_are_those_of_transformers(name, recorded):
    model, expected = recorded(name)
    prompts = [expected["ids"][row, :size] for row, size in enumerate(PROMPTS)]
    texts = model.generate(prompts, 10)  # rows of unlike lengths, with a cache
    tokens = np.zeros((3, max(PROMPTS) + 10), "int32")
    for row, prompt in enumerate(prompts):
        np.testing.assert_array_equal(texts[row], expected[f"written/{row}"])
        tokens[row, : len(prompt) + 10] = [*prompt, *texts[row]]
    best = np.argmax(model(tokens), -1)  # without one: each is the likeliest next
    for row, size in enumerate(PROMPTS):
        np.testing.assert_array_equal(best[row, size - 1 : size + 9], texts[row])


def test_the_loss_of_routers_is_that_of_transformers(recorded):
    model, expected = recorded("mixtral")
    assert model.options.router_loss == 0.001
    values = [weight.value for weight in model.trainable_variables]
    _, _, losses = model.stateless_call(
        values, [], expected["ids"], training=True, return_losses=True
    )
    assert float(sum(losses)) == pytest.approx(0.001 * expected["aux_loss"], rel=1e-5)


@pytest.mark.parametrize("name", ["mixtral", "qwen3_moe"])
def test_experts_are_read_from_one_tensor_too(name, recorded, tmp_path):
    model, expected = recorded(name)
    shutil.copytree(HERE / name, tmp_path / name)
    tensors = load_file(HERE / name / "model.safetensors")
    fused = {k: v for k, v in tensors.items() if ".experts." not in k}
    parts = ("w1", "w3", "w2") if name == "mixtral" else ("gate", "up", "down")
    for layer in range(model.options.layers):
        old = "block_sparse_moe" if name == "mixtral" else "mlp"
        start = f"model.layers.{layer}.{old}."
        if model.options.has_experts(layer):
            gate, up, down = (
                np.stack(
                    [
                        tensor
                        for key, tensor in sorted(tensors.items())
                        if key.startswith(f"{start}experts.") and f".{part}" in key
                    ]
                )
                for part in parts
            )
            new = f"model.layers.{layer}.mlp."
            fused[f"{new}gate.weight"] = fused.pop(f"{start}gate.weight")
            fused[f"{new}experts.gate_up_proj"] = np.concatenate([gate, up], 1)
            fused[f"{new}experts.down_proj"] = down
    save_file(fused, tmp_path / name / "model.safetensors")
    close(from_pretrained(tmp_path / name)(expected["ids"]), expected["logits"])
    model.save_pretrained(tmp_path / "written")
    written = load_file(tmp_path / "written" / "model.safetensors")
    assert written.keys() == tensors.keys()
