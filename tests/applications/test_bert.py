"""BERT against its formulas."""

import numpy as np
import pytest
from tests.applications import hub_files, numpy_encoders

from exburn.applications import BERT
from exburn.errors import ArgumentError, FileFormatError, ShapeError

IDS = np.array([[2, 5, 9, 3, 0], [2, 7, 3, 0, 0]])
MASK = (IDS != 0).astype("int32")
TYPES = np.array([[0, 0, 1, 1, 0], [0, 1, 1, 0, 0]])
X = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": TYPES}


@pytest.fixture(scope="module")
def tensors():
    return hub_files.arrays(hub_files.bert_shapes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tensors):
    folder = tmp_path_factory.mktemp("bert")
    return hub_files.write(folder, hub_files.BERT, tensors)


@pytest.fixture(scope="module")
def model(folder):
    return BERT.from_pretrained(folder)


def test_vectors_of_tokens(model, tensors):
    expected = numpy_encoders.bert(tensors, IDS, MASK, TYPES)
    np.testing.assert_allclose(model.predict(X, verbose=0), expected, atol=2e-5)


def test_what_is_left_out_counts_as_usual(model, tensors):
    ones, zeros = np.ones_like(IDS), np.zeros_like(IDS)
    expected = numpy_encoders.bert(tensors, IDS, ones, zeros)
    given = {"input_ids": IDS, "attention_mask": None, "token_type_ids": None}
    np.testing.assert_allclose(np.asarray(model(given)), expected, atol=2e-5)


@pytest.mark.parametrize("pooling", ["first", "mean", "pooler"])
def test_one_vector_of_a_text(pooling, folder, tensors):
    model = BERT.from_pretrained(folder, pooling=pooling)
    x = numpy_encoders.bert(tensors, IDS, MASK, TYPES)
    weights = MASK[:, :, None]
    expected = {
        "first": x[:, 0],
        "mean": (x * weights).sum(1) / weights.sum(1),
        "pooler": numpy_encoders.pooled(tensors, x),
    }[pooling]
    np.testing.assert_allclose(np.asarray(model(X)), expected, atol=2e-5)


def test_a_file_alone_and_older_names(tensors, tmp_path):
    older = {
        f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): array
        for name, array in tensors.items()
    }
    older["cls.predictions.bias"] = np.zeros(32, "f4")
    hub_files.write(tmp_path / "older", hub_files.BERT, older)
    model = BERT.from_pretrained(tmp_path / "older")
    expected = numpy_encoders.bert(tensors, IDS, MASK, TYPES)
    np.testing.assert_allclose(np.asarray(model(X)), expected, atol=2e-5)
    model.save_pretrained(tmp_path / "again")
    one, two = (tmp_path / f / "model.safetensors" for f in ("older", "again"))
    assert one.read_bytes() == two.read_bytes()
    sizes = {"vocabulary_size": 32, "layers": 2, "width": 16, "heads": 2}
    sizes |= {"mlp_width": 24, "positions": 12}
    again = BERT(**sizes, weights=one)
    np.testing.assert_allclose(np.asarray(again(X)), expected, atol=2e-5)
    with pytest.raises(FileFormatError, match=r"\(31, 16\), in the file \(32"):
        BERT(**(sizes | {"vocabulary_size": 31}), weights=one)


def test_arguments(model):
    with pytest.raises(ArgumentError, match="3 heads do not divide 16"):
        BERT(width=16, heads=3)
    with pytest.raises(ArgumentError, match="2 labels do not name 3"):
        BERT(width=16, heads=2, classes=3, labels=["a", "b"])
    with pytest.raises(ArgumentError, match="pooling"):
        BERT(pooling="last")
    long = np.ones((1, 13), int)
    with pytest.raises(ShapeError, match="12 tokens, received 13"):
        model({"input_ids": long, "attention_mask": None, "token_type_ids": None})


def test_texts_go_in_and_names_come_out(folder, tmp_path):
    tokenizers = pytest.importorskip("tokenizers")
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "so": 4, "it": 5, "is": 6}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, "[UNK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    for name in ("config.json", "model.safetensors"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    made.save(str(tmp_path / "tokenizer.json"))
    model = BERT.from_pretrained(tmp_path, classes=2, labels=["no", "yes"])
    x = model.preprocess(["so it is", "it"])
    assert x["input_ids"].tolist() == [[2, 4, 5, 6, 3], [2, 5, 3, 0, 0]]
    assert x["attention_mask"].tolist() == [[1] * 5, [1, 1, 1, 0, 0]]
    scores = model.predict(x, verbose=0)
    assert {name for _, name, _ in model.decode(scores)[0]} == {"no", "yes"}
    with pytest.raises(ArgumentError, match="14 tokens, of 12"):
        model.preprocess("so " * 12)
    for value in (None, b"so", 3, ["so", None]):
        with pytest.raises(ArgumentError, match="a text is needed"):
            model.preprocess(value)
    cut = model.preprocess("so " * 12, truncate=True)["input_ids"]
    assert cut.shape == (1, 12) and cut[0, -1] == 3
    model.save_pretrained(tmp_path / "again")
    again = BERT.from_pretrained(tmp_path / "again")
    assert again.labels == ("no", "yes")
    np.testing.assert_allclose(again.predict(x, verbose=0), scores, atol=1e-6)


def test_a_model_without_a_tokenizer(model):
    with pytest.raises(ArgumentError, match="no tokenizer"):
        model.preprocess("so it is")
