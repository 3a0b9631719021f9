import jsonschema
from tests.serving.http.conftest import tensor


def check(api, name, value):
    """Whether a value is of a schema of the description."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": api["components"]}
    validator = jsonschema.Draft202012Validator(schema)
    return validator.is_valid(value)


def test_bodies_are_as_it_says(client, rows):
    api = client("GET", "/openapi.json").json()
    good = {"inputs": [tensor("x", rows(2))]}
    assert check(api, "mlp-1-request", good)
    assert check(api, "mlp-1-answer", client.infer(rows(2)).json())
    assert check(api, "Error", client.infer(rows(2)[:, :2]).json())
    nested = {"inputs": [tensor("x", rows(2), data=rows(2).tolist())]}
    assert check(api, "mlp-1-request", nested)
    for wrong in (
        {},
        {"inputs": []},
        {"inputs": [tensor("y", rows(2))]},
        {"inputs": [tensor("x", rows(2), "FP64")]},
        {"inputs": [tensor("x", rows(2)[:, :2])]},
        {"inputs": [tensor("x", rows(0))]},
        {"inputs": [tensor("x", rows(2), data=[])]},
        {"inputs": [tensor("x", rows(2))], "outputs": [{"name": "y"}]},
    ):
        assert not check(api, "mlp-1-request", wrong)


def test_every_route_of_a_model_is_in_it(client):
    paths = client("GET", "/openapi.json").json()["paths"]
    for model in ("mlp", "several"):
        for version in ("", "/versions/1"):
            for end in ("", "/ready", "/infer"):
                assert f"/v2/models/{model}{version}{end}" in paths
