"""The files of docs/server.md for proxies, containers, Kubernetes and Ray Serve."""

import importlib.util
import inspect
import re
import shlex

import pytest
from tests.project.test_docs import ROOT, blocks

from exburn.command_line import serve
from exburn.command_line.main import make_parser
from exburn.serving.options import seconds
from exburn.serving.ray import deployment

PAGE = ROOT / "docs" / "server.md"
FILES = {
    info.split("file=")[1]: text for info, _, text in blocks(PAGE) if "file=" in info
}
COMMANDS = [
    line
    for info, _, text in blocks(PAGE)
    if info == "bash"
    for line in text.replace("\\\n", " ").splitlines()
]
PROBES = {"startup": "ready", "readiness": "ready", "liveness": "live"}


def objects(name):
    """The objects of a YAML file."""
    yaml = pytest.importorskip("yaml", reason="comes with the tests' other packages")
    return list(yaml.safe_load_all(FILES[name]))


def options_of(words):
    """What ``exburn serve`` makes of the words after it."""
    return make_parser().parse_args(["serve", *words])


def test_commands_are_ones_that_exburn_takes():
    served = [line for line in COMMANDS if line.startswith("exburn serve")]
    assert len(served) == 4
    for line in served:
        options_of(shlex.split(line, comments=True)[2:])
    (run,) = [line for line in COMMANDS if line.startswith("docker run")]
    words = shlex.split(run)
    options = options_of(words[words.index("models") + 1 :])
    assert len(options.files) == 2 and str(options.api_key_file) == "/keys.txt"
    assert {"--read-only", "--cap-drop", "no-new-privileges"} < set(words)


def test_the_container_starts_the_command_as_somebody_without_rights():
    lines = dict(line.split(" ", 1) for line in FILES["Containerfile"].splitlines())
    assert lines["USER"].isdigit() and int(lines["USER"]) > 0
    assert lines["USER"] in lines["RUN"]
    entry = [*map(str.strip, re.findall(r'"([^"]+)"', lines["ENTRYPOINT"]))]
    assert entry[:2] == ["exburn", "serve"]
    options = options_of([*entry[2:], *re.findall(r'"([^"]+)"', lines["CMD"])])
    assert options.host == "0.0.0.0"  # of the container, which says what it publishes
    assert options.files[0].is_relative_to(lines["COPY"].split()[1])


def test_the_pods_drain_within_their_grace_and_are_probed():
    pods, service, budget = objects("models.yaml")
    spec = pods["spec"]["template"]["spec"]
    (server,) = spec["containers"]
    options = options_of(server["args"])
    drain, read, timeout = (
        seconds("", name, getattr(options, name, default(name)))
        for name in ("drain", "read_timeout", "timeout")
    )
    assert spec["terminationGracePeriodSeconds"] > drain + read + timeout
    paths = {kind: server[f"{kind}Probe"]["httpGet"] for kind in PROBES}
    assert paths == {
        kind: {"path": f"/v2/health/{what}", "port": "http"}
        for kind, what in PROBES.items()
    }
    ready = server["readinessProbe"]  # noticed long before the drain is over
    assert ready["periodSeconds"] * ready["failureThreshold"] < drain / 2
    assert spec["securityContext"]["runAsNonRoot"]
    rights = server["securityContext"]
    assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"]
    assert rights["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["name"]: mount["mountPath"] for mount in server["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in spec["volumes"]}
    assert options.api_key_file.is_relative_to(mounted["keys"])
    labels = pods["spec"]["template"]["metadata"]["labels"]
    assert pods["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["ports"][0]["targetPort"] == server["ports"][0]["name"]
    assert budget["spec"]["minAvailable"] < pods["spec"]["replicas"]


def default(name):
    """What the command's help says of an option of the server."""
    return re.search(r'\("(.*)"\)', serve._options()[name].help)[1]


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None,
    reason="pip install kubernetes-validate",
)
def test_the_manifest_fits_the_schemas_of_kubernetes():
    import kubernetes_validate

    for each in objects("models.yaml"):
        kubernetes_validate.validate(each, "1.31", strict=True)


def test_the_configuration_for_ray_names_the_program_s_application():
    (config,) = objects("ray_serve.yaml")
    (application,) = config["applications"]
    module, name = application["import_path"].split(":")
    source = FILES[f"{module}.py"]
    assert f"\n{name} = deployment(" in source
    (deployed,) = application["deployments"]
    parameters = inspect.signature(deployment).parameters
    assert deployed["name"] == "exburn"
    most = parameters["requests_per_replica"].default
    scaling = deployed["autoscaling_config"]
    assert deployed["max_ongoing_requests"] == most
    assert scaling["target_ongoing_requests"] == most // 2
    counts = scaling["min_replicas"], scaling["max_replicas"]
    assert f"replicas={counts}" in source


@pytest.mark.skipif(
    importlib.util.find_spec("fastapi") is None,
    reason="no Ray Serve: pip install 'exburn[ray]'",
)
def test_the_configuration_fits_ray_s_schema():
    schema = pytest.importorskip("ray.serve.schema")
    (config,) = objects("ray_serve.yaml")
    schema.ServeDeploySchema.model_validate(config)


@pytest.mark.parametrize("name", ["nginx.conf", "Caddyfile"])
def test_proxies_pass_on_inference_and_health_alone(name):
    text = FILES[name]
    assert text.count("{") == text.count("}")
    assert "/v2/" in text and "404" in text
    assert not re.search(r"proxy_pass http://models/|/metrics|/openapi", text)
    assert "X-Request-ID" in text
