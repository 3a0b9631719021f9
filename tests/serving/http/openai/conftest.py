import importlib.util

import pytest

import exburn

NEEDED = ("httpx", "starlette", "uvicorn", "orjson", "prometheus_client", "tokenizers")
if not all(map(importlib.util.find_spec, (*NEEDED, "jinja2", "openai"))):
    collect_ignore_glob = ["test_*.py"]

KEY = "the key of the tests"


@pytest.fixture(scope="session")
def writer():
    """A model with a template of chats, and positions for long texts."""
    from exburn.applications import GPT2
    from exburn.text import CHATML, Tokenizer

    exburn.set_random_seed(0)
    special = ["<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer.train(["A class has methods."] * 9, 300, special=special)
    size = tokenizer.vocabulary_size
    model = GPT2(size, layers=1, width=16, heads=2, positions=512)
    model.set_weights([9 * w if w.ndim > 1 else w for w in model.get_weights()])
    model.tokenizer = tokenizer.with_chat_template(CHATML)
    return model


@pytest.fixture(scope="session")
def texts(writer):
    from exburn.serving import TextStream

    with TextStream(writer, slots=4, max_queue=40) as texts:
        yield texts


@pytest.fixture(scope="session")
def server(texts):
    from exburn.serving import Server

    with Server({"gpt": texts}, port=0, api_keys=[KEY], max_body="100 KB") as server:
        yield server


@pytest.fixture(scope="session")
def client(server):
    import openai

    options = {"base_url": f"{server.url}/v1", "api_key": KEY, "max_retries": 0}
    with openai.OpenAI(**options) as client:
        yield client
