import asyncio
import base64
import re

import numpy as np
import pytest
from PIL import Image
from tests.serving.http.browser import Browser, find_browser

import exburn
from exburn import layers
from exburn.serving import Endpoint, Server
from exburn.serving.http.page import read_page


def test_it_holds_all_that_it_shows_and_may_run_nothing_else():
    page, headers = read_page()
    assert not re.findall(rb"https?://|//[a-z]|@import|url\(", page.split(b"<body>")[0])
    assert b"innerHTML" not in page and b"eval(" not in page
    assert not re.findall(rb"<[^>]+ (on\w+|style)=", page)
    policy = dict(
        p.split(" ", 1) for p in headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"].startswith("'sha256-")
    assert "unsafe" not in headers["content-security-policy"]


def test_it_is_there_without_a_key(model, mlp):
    from tests.serving.http.conftest import Client

    client = Client(Server({"m": mlp}, api_keys=["k" * 20]).asgi())
    answer = client("GET", "/")
    assert answer.status_code == 200 and b"mlp" not in answer.content
    assert answer.headers["content-type"] == "text/html; charset=utf-8"


@pytest.fixture(scope="module")
def models():
    text = layers.StringLookup(vocabulary=["good", "bad"], output_mode="one_hot")
    ids = exburn.Input((2,), dtype="int32", name="ids")
    flags = exburn.Input((1,), dtype="bool", name="flags")
    outputs = {"double": ids * 2, "not": exburn.ops.logical_not(flags)}
    return {
        "iris": exburn.Sequential(
            [exburn.Input((4,), name="flower"), layers.Dense(3, name="species")]
        ),
        "digits": exburn.Sequential(
            [
                exburn.Input((6, 4, 1), name="digit"),
                layers.Rescaling(1 / 255),
                layers.Flatten(),
                layers.Dense(2, name="y"),
            ]
        ),
        "mood": exburn.Sequential(
            [exburn.Input((1,), dtype="string", name="text"), text, layers.Dense(1)]
        ),
        "many": exburn.Model([ids, flags], outputs),
        "counts": Endpoint(stream=count),
    }


async def count(request):
    for i in range(request.get("up_to", 10_000)):
        yield f"<i>{i}</i> "
        if request.get("fail"):
            raise ZeroDivisionError
        await asyncio.sleep(0.002)


@pytest.fixture(scope="module")
def page(models):
    if find_browser() is None:
        pytest.skip("there is no browser")
    key = "the key of the page"
    with Server(models, port=0, batch_size=2, api_keys=[key]) as server:
        with Browser() as browser:
            browser.open(server.url)
            browser.wait("document.getElementById('state')?.className == 'bad'")
            assert browser.run("$('locked').hidden") is False  # it asks for a key
            browser.run(f"$('key').value = '{key}'; $('key').onchange()")
            browser.wait("fields.length")
            yield browser
            assert browser.complaints() == []
            asked = browser.requests()
            assert all(url.startswith((server.url, "data:")) for url in asked)


def choose(page, model, inputs):
    page.run(f"$('model').value = '{model}'; $('model').onchange()")
    page.wait(f"!$('run').disabled && fields.length == {inputs}")


def run(page):
    page.run("$('run').click()")
    page.wait("!$('run').disabled")
    assert page.run("$('state').className") == "soft", page.run("$('state').innerText")
    cells = page.run("[...document.querySelectorAll('td')].map((c) => c.innerText)")
    return [float(cell) if cell[-1].isdigit() else cell for cell in cells]


@pytest.mark.slow
def test_numbers_are_typed_in(page, models):
    choose(page, "iris", 1)
    page.run("document.querySelector('#inputs button').click()")  # another row
    page.run(
        "document.querySelectorAll('#inputs input').forEach((f, i) => f.value = i / 2)"
    )
    expected = models["iris"].predict(np.arange(8).reshape(2, 4) / 2, verbose=0)
    np.testing.assert_allclose(run(page), expected.ravel(), rtol=1e-4)
    assert "iris/versions/1/infer" in page.run("$('curl').innerText")
    page.run("document.querySelector('#inputs input').value = ''; $('run').click()")
    page.wait("$('state').className == 'bad'")
    assert "is no number" in page.run("$('state').innerText")


@pytest.mark.slow
def test_images_are_chosen(page, models, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (2, 6, 4), np.uint8)
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for array, path in zip(pixels, paths, strict=True):
        Image.fromarray(array).save(path)
    choose(page, "digits", 1)
    page.choose_files("#inputs input[type=file]", *paths)
    page.wait("document.querySelectorAll('canvas').length == 2")
    expected = models["digits"].predict(pixels[..., None], verbose=0)
    np.testing.assert_allclose(run(page), expected.ravel(), rtol=1e-3)
    assert len(base64.b64decode(page.picture())) > 5000


@pytest.mark.slow
def test_what_generates_is_seen_as_it_comes(page):
    page.run("$('model').value = 'counts'; $('model').onchange()")
    page.wait("!$('generation').hidden && $('inference').hidden")
    page.run("$('asked').value = '{\"up_to\": 3}'; $('generate').click()")
    page.wait("$('progress').innerText.startsWith('3 parts')")
    assert page.run("$('parts').innerText") == "<i>0</i> <i>1</i> <i>2</i> "
    page.run("$('asked').value = '{\"fail\": true}'; $('generate').click()")
    page.wait("$('progress').className == 'bad'")
    page.run("$('asked').value = '{}'; $('generate').click()")
    page.wait("parseInt($('progress').innerText) >= 20")
    page.run("$('stop').click()")
    page.wait("$('progress').innerText == 'stopped' && !$('generate').disabled")
    page.run("$('model').value = 'iris'; $('model').onchange()")
    page.wait("$('generation').hidden && !$('inference').hidden")


@pytest.mark.slow
def test_texts_flags_and_counts_are_typed_in(page, models):
    choose(page, "mood", 1)
    page.run("document.querySelector('textarea').value = 'good\\n<b>bad</b>'")
    expected = models["mood"].predict(np.array([["good"], ["?"]]), verbose=0)
    np.testing.assert_allclose(run(page), expected.ravel(), rtol=1e-4)
    choose(page, "many", 2)
    page.run("document.querySelectorAll('input[type=number]')[1].value = 7")
    assert run(page) == [0, 14, "true"]
    page.wait("$('queue').innerText.includes('ready')")
