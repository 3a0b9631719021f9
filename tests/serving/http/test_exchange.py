import orjson

from exburn.serving.http.exchange import Exchange


def test_its_fields_are_json_without_bodies_or_keys():
    exchange = Exchange("7", "GET", "/" + "x" * 1000, {b"x-api-key": b"secret"})
    fields = exchange.fields()
    assert fields["status"] == 499  # nothing was sent
    assert len(fields["path"]) == 200
    assert 0 <= fields["ms"] < 1000
    assert b"secret" not in orjson.dumps(fields)
