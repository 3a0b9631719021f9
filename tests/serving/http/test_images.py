import asyncio
import base64
import io
import json
import threading
import time

import numpy as np
import pytest
from PIL import Image
from tests.serving.http.conftest import FAST, Client, tensor

import exburn
from exburn import layers
from exburn.serving import Endpoint, Images, Server
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.images import begins_with_rescaling, decode_images, is_image
from exburn.serving.http.tensor import Tensor

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 6, 3), np.uint8)
PHOTO = Tensor("photo", "FP32", (-1, 4, 6, 3))


def file(pixels=PIXELS, kind="PNG", size=None):
    image = Image.fromarray(pixels)
    if size is not None:
        image = image.resize(size, Image.Resampling.NEAREST)
    stream = io.BytesIO()
    image.save(stream, kind)
    return stream.getvalue()


def decode(*files, tensor=PHOTO, images=None, reserve=lambda size: None, **options):
    array = np.empty(len(files), object)
    array[:] = files
    return decode_images(tensor, array, images or Images(), reserve, **options)


def test_pixels_are_those_of_the_file():
    both = decode(file(), file(255 - PIXELS))
    np.testing.assert_array_equal(both, np.stack([PIXELS, 255 - PIXELS]))
    assert both.dtype == np.float32
    scaled = decode(file(), images=Images(scale=1 / 255, offset=-0.5))
    np.testing.assert_allclose(scaled[0], PIXELS / 255 - 0.5, atol=1e-6)
    assert abs(decode(file(kind="JPEG"))[0] - PIXELS).mean() < 60  # with losses


def test_images_are_resized_as_data_sets_do(tmp_path):
    wide = file(size=(18, 8))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(wide)
    data = exburn.utils.image_dataset_from_directory(
        tmp_path, image_size=(4, 6), labels=None
    )
    (expected,) = [np.asarray(batch) for batch in data]
    np.testing.assert_array_equal(decode(wide), expected)
    grey = decode(wide, tensor=Tensor("x", "UINT8", (-1, 2, 2, 1)))
    assert grey.shape == (1, 2, 2, 1) and grey.dtype == np.uint8


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"no image", 400),
        (file()[:60], 400),
        (file(kind="GIF"), 400),
        (lambda: file(np.zeros((5000, 5000), np.uint8)), 413),
        (file()[:16] + b"\x00\x00\xff\xff" * 2 + file()[24:], 400),
        (lambda: file(np.zeros((1, 10_000_000), np.uint8), size=(30000, 9000)), 413),
    ],
    ids=["empty", "text", "cut off", "gif", "bomb", "wrong sum", "large bomb"],
)
def test_other_files_are_refused(data, status):
    with pytest.raises(RequestFailure, match="'photo': image 1") as caught:
        decode(file(), data() if callable(data) else data)
    assert caught.value.status == status


def test_what_they_grow_to_is_taken_from_the_memory():
    """The pixels of all files, and the arrays, before anything is decoded."""
    sizes = []
    decode(file(), file(size=(60, 40)), reserve=sizes.append)
    arrays, pixels = 2 * 4 * 6 * 3 * 4, 4 * 6 + 60 * 40
    assert sizes == [arrays + 4 * pixels + 16 * 60 * 40]
    sizes.clear()
    deep = Image.fromarray(np.zeros((40, 60), np.uint16))
    stream = io.BytesIO()
    deep.save(stream, "PNG")
    decode(stream.getvalue(), reserve=sizes.append)
    assert sizes[0] > 32 * 60 * 40


def test_all_images_of_a_request_have_a_bound():
    """A file of 16 KB may have 16.7 million pixels: nine of them are not decoded."""
    large = file(np.zeros((4096, 4096), np.uint8))
    calls = []

    def check():
        calls.append(1)

    with pytest.raises(RequestFailure, match="134,217,728 pixels") as caught:
        decode(*[large] * 9, check=check)
    assert caught.value.status == 413 and len(calls) == 9


def test_a_request_that_is_over_is_not_decoded_further():
    left = [1] * 5

    def check():
        if not left:
            raise TimeoutError
        left.pop()

    with pytest.raises(TimeoutError):
        decode(*[file()] * 4, check=check)  # four are measured, one is decoded
    assert not left


def test_a_jpeg_of_many_scans_is_refused():
    image, stream = Image.fromarray(PIXELS), io.BytesIO()
    image.save(stream, "JPEG", progressive=True)
    data = stream.getvalue()
    assert decode(data).shape == (1, 4, 6, 3)
    start, end = data.rindex(b"\xff\xda"), data.rindex(b"\xff\xd9")
    with pytest.raises(RequestFailure, match="scans") as caught:
        decode(data[:end] + data[start:end] * 60 + data[end:])
    assert caught.value.status == 413


def classifier(*first, name="photo"):
    stack = [exburn.Input((4, 6, 3), name=name), *first]
    return exburn.Sequential([*stack, layers.Flatten(), layers.Dense(2, name="y")])


def test_a_model_that_scales_pixels_takes_images():
    scaling, noise = layers.Rescaling(1 / 255), layers.RandomFlip()
    assert begins_with_rescaling(classifier(scaling), 0)
    assert begins_with_rescaling(classifier(noise, layers.Rescaling(1 / 255)), 0)
    assert not begins_with_rescaling(classifier(), 0)
    assert not begins_with_rescaling(classifier(layers.ReLU(), scaling), 0)
    assert not begins_with_rescaling(lambda x: x, 0)
    assert is_image(file()) and is_image(file(kind="JPEG")) and not is_image(b"GIF8")


@pytest.fixture(scope="module")
def models():
    return {"scales": classifier(layers.Rescaling(1 / 255)), "plain": classifier()}


@pytest.fixture(scope="module")
def client(models):
    told = Endpoint(models["plain"], images={"photo": Images(scale=2)})
    served = {
        **models,
        "told": told,
        "refuses": Endpoint(models["scales"], images=False),
    }
    server = Server(served, max_memory="10 MB", **FAST)
    yield Client(server.asgi())
    server.close()


def ask(client, model, entry, content=b"", **headers):
    text = json.dumps({"inputs": [{"name": "photo", "datatype": "BYTES", **entry}]})
    if content:
        headers["Inference-Header-Content-Length"] = str(len(text))
    body = text.encode() + content
    answer = client("POST", f"/v2/models/{model}/infer", content=body, headers=headers)
    if answer.status_code != 200:
        return answer
    return np.reshape(answer.json()["outputs"][0]["data"], (-1, 2))


def test_files_come_as_base64_in_binary_or_alone(client, models):
    (tensor,) = client("GET", "/v2/models/scales").json()["inputs"]
    assert tensor["parameters"] == {"content_type": "image"}
    assert "parameters" not in client("GET", "/v2/models/plain").json()["inputs"][0]
    x = PIXELS[None].astype(np.float32)
    expected = models["scales"].predict(x, verbose=0)
    texts = [base64.b64encode(file()).decode()] * 2
    answer = ask(client, "scales", {"shape": [2], "data": texts})
    np.testing.assert_allclose(answer, [*expected] * 2, atol=1e-5)
    content = len(file()).to_bytes(4, "little") + file()
    size = {"parameters": {"binary_data_size": len(content)}}
    answer = ask(client, "scales", {"shape": [1], **size}, content)
    np.testing.assert_allclose(answer, expected, atol=1e-5)
    head = {"Inference-Header-Content-Length": "0"}
    alone = client("POST", "/v2/models/scales/infer", content=file(), headers=head)
    np.testing.assert_allclose(
        alone.json()["outputs"][0]["data"], expected[0], atol=1e-5
    )
    told = ask(client, "told", {"shape": [1], "data": texts[:1]})
    expected = models["plain"].predict(2 * x, verbose=0)
    np.testing.assert_allclose(told, expected, atol=1e-3)


TEXT = base64.b64encode(file()).decode()
LINES = base64.encodebytes(file()).decode()


@pytest.mark.parametrize(
    "text",
    [
        LINES,
        LINES.replace("\n", "\r\n"),
        f" \t{TEXT}\n",
        f"data:image/png;base64,{TEXT}",
        f"data:image/png;name=a.png;base64,{LINES}",
        f"DATA:;BASE64,{TEXT}",
    ],
)
def test_base64_may_have_lines_and_be_a_url(client, models, text):
    assert text != TEXT
    answer = ask(client, "scales", {"shape": [1], "data": [text]})
    expected = ask(client, "scales", {"shape": [1], "data": [TEXT]})
    np.testing.assert_array_equal(answer, expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"data:image/png,{TEXT}", "without ;base64,"),
        ("data:image/png;base64", "without ;base64,"),
        (f"data:image/png;base64,{TEXT}!", "no base64"),
        ("data:text/plain;base64,bm8=", "neither PNG nor JPEG"),
        ("https://images.example/a.png", "no base64"),
        ("file:///etc/passwd", "no base64"),
        (TEXT[:-1], "no base64"),
        (TEXT + "ä", "no base64"),
        ("", "neither PNG nor JPEG"),
    ],
)
def test_other_texts_are_no_files(client, text, message):
    answer = ask(client, "scales", {"shape": [1], "data": [text]})
    assert answer.status_code == 400 and message in answer.json()["error"]


@pytest.mark.parametrize(
    ("entry", "model"),
    [
        ({"shape": [1], "data": ["no base64!"]}, "scales"),
        ({"shape": [1], "data": ["bm8gaW1hZ2U="]}, "scales"),
        ({"shape": [1, 1], "data": ["bm8gaW1hZ2U="]}, "scales"),
        ({"shape": [1], "data": [1]}, "scales"),
        ({"shape": [1], "data": ["bm8gaW1hZ2U="]}, "plain"),
        ({"shape": [1], "data": ["bm8gaW1hZ2U="]}, "refuses"),
    ],
)
def test_what_is_no_image_is_the_callers_fault(client, entry, model):
    assert ask(client, model, entry).status_code == 400


def test_many_small_files_may_need_more_memory_than_there_is(client):
    dot = base64.b64encode(file(np.zeros((1, 1), np.uint8))).decode()
    count = 40_000  # of 288 bytes each
    entry = {"shape": [count], "data": [dot] * count}
    assert ask(client, "scales", entry).status_code == 413


@pytest.fixture
def slow(monkeypatch):
    """Images that take 20 ms each; counts those that are decoded."""
    decoded = []

    def decode(file, shape, images):
        decoded.append(threading.current_thread().name)
        time.sleep(0.02)
        return np.zeros(shape[1:], np.float32)

    monkeypatch.setattr("exburn.serving.http.images._decode", decode)
    return decoded


@pytest.fixture
def hurried(models):
    server = Server(models, timeout="150 ms", **FAST)
    yield Client(server.asgi())
    server.close()


def many(count):
    entry = {"name": "photo", "datatype": "BYTES", "shape": [count]}
    return json.dumps({"inputs": [{**entry, "data": [TEXT] * count}]})


def test_images_are_decoded_in_the_time_of_their_request(hurried, slow):
    """Twelve requests, of 4 s each, end with their time, and hold up nobody else."""
    path, rows = "/v2/models/scales/infer", np.zeros((300, 4, 6, 3), np.float32)
    numbers = json.dumps({"inputs": [tensor("photo", rows)]})  # read by a thread, too

    async def run():
        began = time.monotonic()
        ask = [hurried.ask("POST", path, content=many(200)) for _ in range(12)]
        tasks = [asyncio.create_task(each) for each in ask]
        await asyncio.sleep(0.05)
        other = await hurried.ask("POST", path, content=numbers)
        answers = await asyncio.gather(*tasks)
        return other, answers, time.monotonic() - began

    other, answers, seconds = asyncio.run(run())
    assert other.status_code == 200
    assert {answer.status_code for answer in answers} == {504} and seconds < 2
    assert len(slow) < 60 and {name[:13] for name in slow} == {"exburn-images"}


def test_a_caller_may_give_images_less_time(hurried, slow):
    message = json.loads(many(200)) | {"parameters": {"timeout": 30_000}}
    answer = hurried("POST", "/v2/models/scales/infer", json=message)
    assert answer.status_code == 504 and len(slow) < 5


def test_images_of_a_client_that_left_are_not_decoded(models, slow):
    server = Server(models, **FAST)
    body = {"type": "http.request", "body": many(200).encode()}
    messages = [body]
    scope = {"type": "http", "method": "POST", "headers": []}
    scope |= {"path": "/v2/models/scales/infer", "root_path": "", "query_string": b""}
    sent = []

    async def receive():
        if messages:
            return messages.pop()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)

    asyncio.run(server.asgi()(scope, receive, send))
    server.close()
    assert sent == [] and len(slow) < 20
