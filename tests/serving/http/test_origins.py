import json
import socket

import pytest
from tests.serving.http.conftest import Client, tensor

from exburn.errors import ArgumentError
from exburn.serving import Server
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.origins import Hosts, Origins, absolute_form

HERE, THERE = ("127.0.0.1", 8000), ("192.168.1.7", 8000)


def asked(hosts, name, server=None):
    """The status of a request that names a host."""
    headers = [(b"accept", b"*/*"), (b"host", name.encode("latin-1"))]
    try:
        hosts.check(headers, server)
    except RequestFailure as failure:
        return failure.status
    return 200


@pytest.mark.parametrize(
    ("name", "here", "there"),
    [
        ("localhost", 200, 200),
        ("LocalHost:8000", 200, 200),
        ("localhost.", 200, 200),
        ("localhost:", 200, 200),
        (socket.gethostname(), 200, 200),
        ("127.0.0.1:1", 200, 200),
        ("127.1.2.3", 200, 200),
        ("[::1]:8000", 200, 200),
        ("[0:0:0:0:0:0:0:1]", 200, 200),
        ("192.168.1.7:8000", 400, 200),
        ("10.0.0.1", 400, 200),
        ("[2001:DB8::1]", 400, 200),
        ("0.0.0.0", 400, 200),
        ("evil.example", 400, 400),
        ("evil.example:8000", 400, 400),
        ("127.0.0.1.evil.example", 400, 400),
        ("localhost.evil.example", 400, 400),
        ("xlocalhost", 400, 400),
        ("2130706433", 400, 400),
        ("127.1", 400, 400),
        ("", 400, 400),
        (":8000", 400, 400),
        ("localhost:65536", 400, 400),
        ("localhost:-1", 400, 400),
        ("localhost:8000:8000", 400, 400),
        ("::1", 400, 400),
        ("[::1", 400, 400),
        ("[localhost]", 400, 400),
        ("me@localhost", 400, 400),
        ("localhost/v2", 400, 400),
        ("localhost, evil.example", 400, 400),
        ("localhost\x00", 400, 400),
        ("löcalhost", 400, 400),
        ("a" * 70_000, 400, 400),
    ],
)
def test_a_server_has_the_names_of_its_address(name, here, there):
    hosts = Hosts("127.0.0.1")
    assert (asked(hosts, name, HERE), asked(hosts, name, THERE)) == (here, there)


def test_further_names_are_allowed():
    hosts = Hosts("Models.Example.", ["api.example", "*.example.org", "10.0.0.1"])
    for name in ("models.example", "API.example:443", "a.b.example.org.", "10.0.0.1"):
        assert asked(hosts, name, HERE) == 200, name
    for name in ("example.org", "xexample.org", "a.api.example", "10.0.0.2"):
        assert asked(hosts, name, HERE) == 400, name
    assert asked(Hosts("::1", ["*"]), "evil.example", HERE) == 200
    assert asked(Hosts("::1"), "test", ("test", None)) == 200  # of an ASGI host


def test_a_request_has_one_host():
    hosts = Hosts("127.0.0.1")
    hosts.check([])  # no browser
    with pytest.raises(RequestFailure, match="one header Host"):
        hosts.check([(b"host", b"localhost")] * 2)


@pytest.mark.parametrize(
    ("target", "parts"),
    [
        (b"http://a:1/b/c?d#e", None),
        (b"http://a:1/b/c?d", (b"a:1", b"/b/c?d")),
        (b"HTTPS://[::1]", (b"[::1]", b"/")),
        (b"http://a?b/c", (b"a", b"/?b/c")),
        (b"ftp://a/b", None),
        (b"/http://a", None),
        (b"*", None),
    ],
)
def test_a_target_may_be_a_url(target, parts):
    assert absolute_form(target) == parts


@pytest.mark.parametrize(
    ("option", "values"),
    [
        ("allowed_hosts", ["http://a.example"]),
        ("allowed_hosts", ["a.example:80"]),
        ("allowed_hosts", [""]),
        ("allowed_hosts", ["a.*.example"]),
        ("allowed_hosts", [7]),
        ("allowed_hosts", 7),
        ("cors_origins", ["app.example.com"]),
        ("cors_origins", ["https://app.example.com/page"]),
        ("cors_origins", ["https://*.example.com "]),
        ("cors_origins", [b"https://app.example.com"]),
        ("cors_origins", True),
    ],
)
def test_what_is_no_name_or_origin_is_an_error_at_once(option, values):
    with pytest.raises(ArgumentError, match=option):
        Server({}, **{option: values})


APP = "https://app.example"
EXPOSED = "inference-header-content-length, retry-after, x-request-id"


@pytest.mark.parametrize(
    ("allowed", "origin", "status", "named"),
    [
        ((), "http://localhost", 200, None),
        ((), "HTTPS://LOCALHOST", 200, None),
        ((), APP, 403, None),
        ((), "http://localhost:1", 403, None),
        ((), "http://localhost.evil.example", 403, None),
        ((), "null", 403, None),
        ((), "", 403, None),
        ((APP,), APP, 200, APP),
        ((APP,), "HTTPS://App.Example", 200, "HTTPS://App.Example"),
        ((APP + "/",), APP, 200, APP),
        ((APP,), "http://app.example", 403, None),
        ((APP,), APP + ":444", 403, None),
        ((APP,), APP + ".evil", 403, None),
        ((APP,), "null", 403, None),
        (("null",), "null", 200, "null"),
        (("*",), "https://any.example", 200, "*"),
    ],
)
def test_pages_from_elsewhere_need_leave(mlp, rows, allowed, origin, status, named):
    """The body's type does not count: a page may post ``text/plain`` unasked."""
    client = Client(Server({"mlp": mlp}, cors_origins=allowed).asgi())
    before = mlp.statistics().requests.get("accepted", 0)
    body = json.dumps({"inputs": [tensor("x", rows(1))]})
    headers = {"origin": origin, "host": "localhost", "content-type": "text/plain"}
    path = "/v2/models/mlp/infer"
    answer = client("POST", path, content=body, headers=headers)
    assert answer.status_code == status
    assert answer.headers.get("access-control-allow-origin") == named
    ran = mlp.statistics().requests.get("accepted", 0) - before
    assert ran == (status == 200)
    asks = {**headers, "access-control-request-method": "POST"}
    asked = client("OPTIONS", path, headers=asks)
    assert asked.status_code == (204 if status == 200 else 403)
    assert asked.headers.get("access-control-allow-origin") == named
    if named is not None:
        assert answer.headers["access-control-expose-headers"] == EXPOSED
        assert answer.headers["vary"] == "Origin"
        names = asked.headers["access-control-allow-headers"].split(", ")
        assert {"content-type", "x-api-key", "authorization"} <= {*names}
        wrong = client("POST", path, content=b"{", headers=headers)
        assert wrong.status_code == 400  # which the page may read
        assert wrong.headers["access-control-allow-origin"] == named


def test_a_preflight_needs_no_key_but_what_follows_does(mlp, rows):
    key = "a-key-of-sixteen"
    app = Server({"mlp": mlp}, cors_origins=APP, api_keys=[key]).asgi()
    client, path = Client(app), "/v2/models/mlp/infer"
    asks = {"origin": APP, "access-control-request-method": "POST"}
    assert client("OPTIONS", path, headers=asks).status_code == 204
    assert client("OPTIONS", path, headers={"origin": APP}).status_code == 401
    body = {"inputs": [tensor("x", rows(1))]}
    assert client("POST", path, json=body, headers={"origin": APP}).status_code == 401
    headers = {"origin": APP, "x-api-key": key}
    assert client("POST", path, json=body, headers=headers).status_code == 200


def test_answers_are_not_kept_for_other_origins(mlp):
    answer = Client(Server({"mlp": mlp}, cors_origins=[APP]).asgi())("GET", "/v2")
    assert answer.headers["vary"] == "Origin"


def test_the_server_names_no_origin_to_who_has_none(client):
    answer = client("GET", "/v2")
    assert answer.status_code == 200
    assert not {name for name in answer.headers if name.startswith("access-control")}
    assert Origins.preflight("OPTIONS", {b"origin": b"null"}) is None
