import asyncio
import base64
import re
import time

import numpy as np
import pytest
from PIL import Image
from tests.serving.http.browser import Browser, find_browser

import exburn
from exburn import layers
from exburn.applications import GPT2
from exburn.serving import Endpoint, Server, TextStream
from exburn.serving.http.routes import read_page
from exburn.text import CHATML, Tokenizer


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
    number = exburn.Input((), name="number")
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
        "square": exburn.Sequential(
            [exburn.Input((8, 8)), layers.Flatten(), layers.Dense(2)]
        ),
        "pixels": exburn.Sequential([exburn.Input((64,)), layers.Dense(2)]),
        "colours": exburn.Sequential(
            [exburn.Input((6, 4, 3), dtype="uint8"), layers.Flatten(), layers.Dense(2)]
        ),
        "words": exburn.Sequential(
            [exburn.Input((30,), dtype="int32"), layers.Embedding(2, 3)]
        ),
        "series": exburn.Sequential(
            [exburn.Input((90, 70)), layers.Flatten(), layers.Dense(1)]
        ),
        "number": exburn.Model(number, number * 2.0),
        "writer": TextStream(writer(), slots=2),
        "chatter": TextStream(writer(4096, CHATML), slots=2),
        "counts": Endpoint(stream=count),
    }


def writer(positions=64, template=None):
    model = GPT2(260, layers=1, width=8, heads=2, positions=positions)
    model.tokenizer = Tokenizer.train(["so it is"] * 9, 260)
    if template is not None:
        model.tokenizer = model.tokenizer.with_chat_template(template)
    return model


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


def test_every_input_has_values_that_work_at_once(page, models):
    served = [name for name in models if name not in ("counts", "writer", "chatter")]
    for name in served:
        choose(page, name, 2 if name == "many" else 1)
        ways = page.run("[...document.querySelectorAll('#inputs option')].length")
        run(page)  # raises where the page tells an error
        assert page.run("$('answer').hidden") is False, name
        if ways == 2:
            page.run(
                "(() => { const way = document.querySelector('#inputs select');"
                "way.selectedIndex = 1; way.onchange(); })()"
            )
            run(page)
            assert page.run("$('answer').hidden") is False, name
    assert len(served) == 10


# A picture of one colour goes to the page as if it were dropped or pasted.
_GIVE = """(async () => {
  const canvas = make("canvas", { width: 5, height: 7 });
  const context = canvas.getContext("2d");
  context.fillStyle = "rgb(200, 100, 50)";
  context.fillRect(0, 0, 5, 7);
  const blob = await new Promise((go) => canvas.toBlob(go, "image/png"));
  const data = new DataTransfer();
  data.items.add(new File([blob], "a.png", { type: "image/png" }));
  document.querySelector(".box canvas").remove();
  EVENT;
})()"""


@pytest.mark.parametrize(
    "event",
    [
        "document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }))",
        "document.querySelector('.box').dispatchEvent("
        "new DragEvent('drop', { dataTransfer: data, cancelable: true }))",
    ],
    ids=["pasted", "dropped"],
)
def test_pictures_are(event, page, models):
    choose(page, "colours", 1)
    page.run(_GIVE.replace("EVENT", event))
    page.wait("document.querySelector('.box canvas')")
    pixels = np.broadcast_to(np.uint8([200, 100, 50]), (1, 6, 4, 3))
    expected = models["colours"].predict(pixels, verbose=0)
    np.testing.assert_allclose(run(page), expected.ravel(), rtol=1e-3)


def test_a_model_that_writes_has_a_box_for_the_prompt(page):
    page.run("$('model').value = 'writer'; $('model').onchange()")
    page.wait("!$('writing').hidden && $('asking').hidden")
    page.run("$('text').value = 'so'; $('tokens').value = 4; $('generate').click()")
    page.wait("$('progress').innerText.includes('parts') && !$('generate').disabled")
    assert page.run("$('progress').className") == "soft"


SEND = "$('message').value = '{}'; $('most').value = '{}'; $('send').click()"


def test_a_model_of_chats_has_a_box_to_chat_in(page, models):
    page.run("$('model').value = 'chatter'; $('model').onchange()")
    page.wait("!$('chatting').hidden && $('generation').hidden")
    page.run(SEND.format("<i>so</i>", 4))
    page.wait("!$('send').disabled && /tokens? in/.test($('telling').innerText)", 60)
    assert page.run("[...$('chat').children].map((p) => p.className)") == [
        "user",
        "assistant",
    ]
    assert page.run("$('chat').firstChild.innerText") == "<i>so</i>"
    page.run(SEND.format("more than there is", 90_000))
    page.wait("$('telling').className == 'bad'")
    assert "max_tokens" in page.run("$('telling').innerText")
    assert page.run("$('message').value") == "more than there is"  # to be sent again
    page.run(f"{SEND.format('long', 3900)}; $('halt').click()")
    page.wait("$('telling').innerText == 'stopped' && !$('send').disabled")
    page.run("$('anew').click()")
    assert page.run("[$('chat').children.length, messages.length]") == [0, 0]
    until = time.monotonic() + 10
    while models["chatter"].engine.statistics().active:
        assert time.monotonic() < until
        time.sleep(0.01)


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


def test_texts_flags_and_counts_are_typed_in(page, models):
    choose(page, "mood", 1)
    page.run("document.querySelector('textarea').value = 'good\\n<b>bad</b>'")
    expected = models["mood"].predict(np.array([["good"], ["?"]]), verbose=0)
    np.testing.assert_allclose(run(page), expected.ravel(), rtol=1e-4)
    choose(page, "many", 2)
    page.run("document.querySelectorAll('input[type=number]')[1].value = 7")
    page.run("document.querySelector('input[type=checkbox]').checked = false")
    assert run(page) == [0, 14, "true"]
    page.wait("$('queue').innerText.includes('ready')")
