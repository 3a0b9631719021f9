"""Two processes behind one port, of which one is killed: no request is lost unseen."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time

import openai
import pytest

SERVER = """
import exburn
from exburn.applications import GPT2
from exburn.serving import Server, TextStream
from exburn.text import Tokenizer

exburn.set_random_seed(0)
tokenizer = Tokenizer.train(["so it is"] * 9, 260)
model = GPT2(260, layers=1, width=16, heads=2, positions=512)
model.tokenizer = tokenizer
texts = TextStream(model, slots=8)
for count in (1, 8):  # compiles
    question = texts.read({"text_input": "so", "parameters": {"max_tokens": 24}})
    for row in texts.ask([question] * count):
        row.answer.result()
server = Server({"m": texts}, port=PORT, reuse_port=True, log_level="ERROR")
server.run(listening=lambda url: print("PORT", server.port, flush=True))
"""


def start(port):
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER.replace("PORT,", f"{port},", 1)],
        env=os.environ | {"JAX_PLATFORMS": "cpu"},
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, int(process.stdout.readline().split()[1])


def wait(condition):
    until = time.monotonic() + 100
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="Linux divides connections")
def test_one_is_killed_and_the_other_answers():
    first, port = start(0)
    second, over = None, threading.Event()
    try:
        second, same = start(port)
        assert same == port
        url = f"http://127.0.0.1:{port}/v1"
        texts, failures, streams = [], [], []

        def ask():
            # Each client has connections of its own, to either process.
            with openai.OpenAI(base_url=url, api_key="none") as client:
                while not over.is_set():
                    try:
                        answer = client.completions.create(
                            model="m", prompt="so", max_tokens=24, temperature=0
                        )
                        texts.append(answer.choices[0].text)
                    except Exception as error:
                        failures.append(error)

        def listen():
            with openai.OpenAI(base_url=url, api_key="none") as client:
                while not over.is_set():
                    finish = None
                    try:
                        for chunk in client.completions.create(
                            model="m",
                            prompt="so",
                            max_tokens=300,
                            temperature=0,
                            stream=True,
                        ):
                            finish = chunk.choices[0].finish_reason
                    except Exception as error:
                        finish = type(error).__name__
                    streams.append(finish)

        threads = [threading.Thread(target=ask) for _ in range(6)]
        threads += [threading.Thread(target=listen) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait(lambda: len(texts) > 20 and len(streams) > 2)
        before, begun = len(texts), len(streams)
        os.kill(first.pid, signal.SIGKILL)
        wait(lambda: len(texts) > before + 20 and len(streams) > begun + 4)
        over.set()
        for thread in threads:
            thread.join(60)
        assert failures == [] and len(set(texts)) == 1
        assert None not in streams  # one that ends has an end, or raises
        assert "length" in streams
        assert second.poll() is None
    finally:
        over.set()
        for process in (first, second):
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                process.communicate()
