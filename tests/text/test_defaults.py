"""What folders say of writing: what ends a text, and how tokens are drawn."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.applications import hub_files

import exburn
from exburn.applications import GPT2, Llama, from_pretrained
from exburn.errors import ArgumentError, FileFormatError
from exburn.text import Greedy
from exburn.text.defaults import GenerationDefaults

SIZES = {"vocabulary_size": 11, "layers": 1, "width": 8, "heads": 2}
FILE = "generation_config.json"


def read(told, files=None):
    config = {"model_type": "llama"} | told
    return Llama.arguments_of(config, {} if files is None else {FILE: files})


@pytest.mark.parametrize(
    ("told", "files", "expected"),
    [
        ({}, None, None),
        ({}, {}, None),
        ({"eos_token_id": 2}, None, {"end_tokens": [2]}),
        ({"eos_token_id": [2, 5]}, None, {"end_tokens": [2, 5]}),
        ({"eos_token_id": None}, None, None),
        ({}, {"eos_token_id": 3}, {"end_tokens": [3]}),
        ({}, {"eos_token_id": [3, 4]}, {"end_tokens": [3, 4]}),
        ({"eos_token_id": 2}, {"eos_token_id": [3, 4]}, {"end_tokens": [3, 4]}),
        ({"eos_token_id": 2}, {"temperature": 0.5}, {"end_tokens": [2]}),
        ({}, {"do_sample": True}, {"do_sample": True, "top_k": 50}),
        ({"do_sample": True, "top_k": 0}, None, {"do_sample": True}),
        (
            {"temperature": 0.1},
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20},
            {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 20},
        ),
        ({}, {"do_sample": True, "temperature": 0}, None),
        ({}, {"repetition_penalty": 1.1}, {"repetition_penalty": 1.1}),
        ({}, {"max_new_tokens": 5}, {"max_new_tokens": 5}),
        ({"max_length": 9}, None, {"max_length": 9}),
        ({}, {"max_length": None, "max_new_tokens": None}, None),
    ],
)
def test_what_folders_say(told, files, expected):
    arguments = read(told, files)
    assert arguments["generation"] == expected
    GenerationDefaults.of(expected)


@pytest.mark.parametrize(
    ("files", "text"),
    [
        ({"num_beams": 4}, "'num_beams' in generation_config.json must be 1"),
        ({"no_repeat_ngram_size": 3}, "'no_repeat_ngram_size'"),
        ({"suppress_tokens": [1]}, "'suppress_tokens' in .* must be null"),
        ({"eos_token_id": "</s>"}, "'eos_token_id' in generation_config.json must be"),
        ({"eos_token_id": [-1]}, "'eos_token_id'"),
        (
            {"top_p": 2},
            "'top_p' in generation_config.json must be a number above 0 to 1",
        ),
        ({"heat": 2}, "nothing is known of: 'heat'"),
        ({"max_new_tokens": 0}, "'max_new_tokens'"),
        ({"max_length": 2**31}, "'max_length'"),
    ],
)
def test_what_is_not_done_is_refused_by_name(files, text):
    with pytest.raises(FileFormatError, match=text):
        read({}, files)


@pytest.mark.parametrize(
    "given",
    [
        {"max_length": 0},
        {"max_new_tokens": 1.5},
        3,
        {"heat": 1},
        {"top_p": 0},
        {"end_tokens": 3},
        {"end_tokens": [-1]},
    ],
)
def test_bad_arguments_are_errors(given):
    with pytest.raises(ArgumentError):
        GPT2(**SIZES, positions=16, generation=given)


def test_all_end_tokens_of_a_folder_stop(tmp_path):
    exburn.set_random_seed(3)
    model = GPT2(**SIZES, positions=64)
    model.set_weights([12 * w if w.ndim > 1 else w for w in model.get_weights()])
    plain = model.generate([1, 2], 30).tolist()
    ends = [plain[4], plain[6]]
    first = next(i for i, token in enumerate(plain) if token in ends)
    for number, (told, files) in enumerate(
        [
            ({"eos_token_id": ends}, None),
            ({"eos_token_id": ends[0]}, {"eos_token_id": ends}),
            ({}, {"eos_token_id": ends}),
        ]
    ):
        folder = tmp_path / str(number)
        model.save_pretrained(folder)
        config = model.config_for("transformers") | told
        hub_files.write_json(folder / "config.json", config)
        if files is not None:
            hub_files.write_json(folder / FILE, files)
        again = from_pretrained(folder)
        assert again.generate([1, 2], 30).tolist() == plain[:first]
        again.save_pretrained(folder / "again")
        for file in ("config.json", FILE):
            exists = (folder / file).exists()
            assert (folder / "again" / file).exists() == exists
            if exists:
                text = (folder / file).read_text()
                assert (folder / "again" / file).read_text() == text
    told = {"end_tokens": ends, "do_sample": True, "top_k": 1}
    again = from_pretrained(tmp_path / "0", generation=told)
    assert again.generate([1, 2], 30, seed=1).tolist() == plain[:first]
    again.save_pretrained(tmp_path / "changed")
    third = from_pretrained(tmp_path / "changed")
    assert third.generation == again.generation
    again.save(tmp_path / "model.exburn")
    loaded = exburn.load_model(tmp_path / "model.exburn")
    assert loaded.generation == again.generation


def test_the_sampler_is_the_chain_of_filters():
    logits = jnp.log(jnp.array([[0.4, 0.3, 0.15, 0.1, 0.05]]))
    options = {"do_sample": True, "top_k": 3, "top_p": 0.8, "min_p": 0.3}
    sampler = GenerationDefaults(**options).sampler
    # Of the three likeliest 0.47, 0.35, 0.18; 0.8 needs two of them.
    assert np.isfinite(sampler.keep(logits)[0]).tolist() == [True, True] + [False] * 3
    assert isinstance(GenerationDefaults(top_p=0.5).sampler, Greedy)
    pytest.importorskip("tokenizers")
    from exburn.models.generation.engine import TextRequest
    from exburn.serving.plain_writer import _sampler_of

    served = _sampler_of(TextRequest([1], 2, top_k=3, top_p=0.8, min_p=0.3))
    np.testing.assert_array_equal(served.keep(logits), sampler.keep(logits))
    keys = jax.random.split(jax.random.key(0), 1)
    likeliest = _sampler_of(TextRequest([1], 2, temperature=0))
    assert int(likeliest(logits, keys)[0]) == 0


@pytest.mark.parametrize(
    ("told", "prompt", "expected"),
    [
        ({}, 2, None),
        ({"max_new_tokens": 3}, 9, 3),
        ({"max_length": 7}, 2, 5),
        ({"max_length": 7, "max_new_tokens": 3}, 9, 3),
    ],
)
def test_how_many_tokens_a_folder_asks_for(told, prompt, expected):
    assert GenerationDefaults.of(told).new_tokens(prompt) == expected
    with pytest.raises(ArgumentError, match="allows 2 tokens"):
        GenerationDefaults.of({"max_length": 2}).new_tokens(2)


def test_the_folder_says_how_many_tokens_are_written():
    def written(told, *prompts, **options):
        model = GPT2(**SIZES, positions=100, generation=told)
        return [len(row) for row in model.generate(list(prompts), **options)]

    assert written({"max_length": 7}, [1, 2], [1]) == [5, 5]
    assert written({"max_new_tokens": 900}, [1] * 95) == [5]  # as far as they go
    assert written({"max_length": 2}, [1, 2], max_new_tokens=1) == [1]
