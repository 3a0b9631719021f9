"""Damaged files of every format: typed errors, soon, in little memory."""

import json
from pathlib import Path

import pytest
from safetensors.numpy import save_file
from tests.applications import hub_files
from tests.saving import mutations

from exburn import layers, load_model, models, saving
from exburn.applications import BERT

HERE = Path(__file__).parent
DRAWS = [50, 1000]
FILES = {
    "h5": HERE / "keras2" / "stack.h5",
    "keras": HERE / "fixtures" / "stack.keras",
    "weights.h5": HERE / "fixtures" / "stack.weights.h5",
}


def read_all(path):
    with saving.read_weights(path) as found:
        for name in found:
            found[name]


@pytest.mark.parametrize("draws", DRAWS)
@pytest.mark.parametrize("kind", FILES)
def test_arrays_of_keras(kind, draws, tmp_path):
    good, path = FILES[kind].read_bytes(), tmp_path / FILES[kind].name
    mutations.check(
        lambda: read_all(path),
        lambda rng: path.write_bytes(mutations.mutate(good, rng)),
        draws,
    )


@pytest.mark.parametrize("draws", [200])
@pytest.mark.parametrize("kind", ["h5", "keras"])
def test_models_of_keras(kind, draws, tmp_path):
    good, path = FILES[kind].read_bytes(), tmp_path / FILES[kind].name
    mutations.check(
        lambda: load_model(path, compile=False),
        lambda rng: path.write_bytes(mutations.mutate(good, rng)),
        draws,
    )


@pytest.mark.parametrize("draws", DRAWS)
def test_safetensors_of_others(draws, tmp_path):
    path = tmp_path / "model.safetensors"
    tensors = hub_files.arrays(list(hub_files.vit_shapes())[:6])
    save_file(tensors, path, metadata={"format": "pt"})
    good = path.read_bytes()
    head = 8 + int.from_bytes(good[:8], "little")

    def make(rng):
        path.write_bytes(mutations.mutate(good[:head], rng) + good[head:])

    assert mutations.check(lambda: read_all(path), make, draws) < draws


@pytest.mark.parametrize("draws", DRAWS)
def test_config_json_of_others(draws, tmp_path):
    tensors = hub_files.arrays(hub_files.bert_shapes())
    hub_files.write(tmp_path, hub_files.BERT, tensors)
    path = tmp_path / "config.json"
    good = json.dumps(hub_files.BERT)

    def read():
        BERT.arguments_of(saving_config(tmp_path), tmp_path)

    def make(rng):
        path.write_bytes(mutations.mutate(good.encode(), rng))

    mutations.check(read, make, draws)


def saving_config(folder):
    from exburn.saving.pretrained_folder import read_config

    return read_config(folder, "test")[0]


@pytest.mark.parametrize(
    "draws",
    [10, 1000],
)
def test_models_in_json(draws):
    stack = [layers.Input((8,)), layers.Dense(4, "relu"), layers.Dense(2)]
    good = models.Sequential(stack).to_json()
    text = [good]

    def make(rng):
        text[0] = mutations.mutate(good.encode(), rng).decode("utf-8", "replace")

    mutations.check(lambda: models.model_from_json(text[0]), make, draws)


@pytest.mark.parametrize("draws", DRAWS)
def test_tokenizers(draws, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    from exburn.text import Tokenizer

    words = {"[PAD]": 0, "[UNK]": 1, "so": 2, "it": 3, "is": 4}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path, good = tmp_path / "tokenizer.json", made.to_str().encode()

    def make(rng):
        path.write_bytes(mutations.mutate(good, rng))

    mutations.check(lambda: Tokenizer.load(path).encode("so it is"), make, draws)
