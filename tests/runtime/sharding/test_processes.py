"""What one process alone says, and what it takes to be one of several."""

import subprocess
import sys

import numpy as np
import pytest

from exburn.errors import ArgumentError
from exburn.runtime.sharding import joining, liveness, processes

CLUSTERS = ["SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "KUBERNETES_SERVICE_HOST"]
CLUSTERS += ["TPU_WORKER_HOSTNAMES", "TPU_WORKER_ID", "MEGASCALE_COORDINATOR_ADDRESS"]


@pytest.fixture(autouse=True)
def nothing_found(monkeypatch):
    for name in [*CLUSTERS, "JAX_COORDINATOR_ADDRESS"]:
        monkeypatch.delenv(name, raising=False)
    for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"):
        monkeypatch.delenv(f"KERAS_DISTRIBUTION_{name}", raising=False)
    monkeypatch.setattr(joining, "_cluster", None)


def test_one_process_agrees_with_itself():
    value = {"a": np.ones(2)}
    assert processes.gather(value) == [value] and processes.broadcast(value) is value
    assert processes.agree_any(True) and not processes.agree_any(False)
    assert processes.agree_min(3) == 3 and processes.count() == 1
    assert processes.is_main() and processes.index() == 0
    processes.barrier("here")
    liveness.check_alive()
    processes.tell_failure(ValueError("none listens"))
    error = RuntimeError("Gloo")
    assert liveness.lost_process(error) is error


def test_asking_does_not_start_jax():
    code = (
        "from exburn.runtime.sharding import joining, processes as p; import jax\n"
        "joining.initialize(num_processes=1); p.barrier('x'); p.agree_min(1)\n"
        "jax.config.update('jax_num_cpu_devices', 3); assert jax.device_count() == 3"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_one_process_may_say_so_twice(monkeypatch):
    monkeypatch.setenv("KERAS_DISTRIBUTION_NUM_PROCESSES", "1")
    joining.initialize()
    joining.initialize(num_processes=1)
    assert 0 <= joining.shared_seed() < 2**32
    with pytest.raises(ArgumentError, match="has joined others already"):
        joining.initialize("10.0.0.1:1234", 2, 0)


def test_without_a_cluster_the_error_lists_what_was_looked_for():
    with pytest.raises(ArgumentError) as caught:
        joining.initialize()
    text = str(caught.value)
    for name in ("SLURM_JOB_ID", "OMPI_MCA_orte_hnp_uri", "KUBERNETES_SERVICE_HOST"):
        assert name in text
    for name in ("JOB_ADDRESSES", "NUM_PROCESSES", "PROCESS_ID"):
        assert f"KERAS_DISTRIBUTION_{name}" in text
    assert "num_processes=1" in text and len(text.splitlines()) <= 12


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (("a:1,b:2", 3, 0), "names 2 processes, num_processes is 3"),
        (("a:1", 2, 2), "below num_processes, 2, received 2"),
        (("a", 2, 0), "must end in a port"),
        (("", 2, 0), "must be text such as"),
        (("a:1", 0, 0), "num_processes must be a whole number of 1"),
        (("a:1", True, 0), "num_processes must be a whole number"),
        (("a:1", 2, -1), "process_id must be a whole number of 0"),
        (("a:1", 2, 0.5), "process_id must be a whole number of 0"),
        (("a:1", 2, None), "no cluster was found"),
        ((None, 2, 0), "no cluster was found"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_waits(given, text):
    with pytest.raises(ArgumentError, match=text):
        joining.initialize(*given)


def test_a_variable_that_is_no_number_is_named(monkeypatch):
    monkeypatch.setenv("KERAS_DISTRIBUTION_PROCESS_ID", "zero")
    with pytest.raises(ArgumentError, match="KERAS_DISTRIBUTION_PROCESS_ID must be"):
        joining.initialize("a:1", 2)


def test_jax_that_computes_already_is_told_apart():
    import jax

    jax.devices()
    with pytest.raises(ArgumentError, match="before any array or model"):
        joining.initialize("127.0.0.1:1", 2, 1)


@pytest.mark.parametrize(
    ("variables", "alone"),
    [
        ({}, False),
        ({"SLURM_NTASKS": "4", "SLURM_NNODES": "4"}, True),
        ({"SLURM_NTASKS": "8", "SLURM_NNODES": "4"}, False),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "1"}, True),
        ({"OMPI_COMM_WORLD_LOCAL_SIZE": "8"}, False),
    ],
)
def test_one_process_a_host_keeps_all_gpus(monkeypatch, variables, alone):
    for name in ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_STEP_NUM_NODES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert joining._is_alone_on_host() == alone


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, "x", None, True]},
        np.arange(6, dtype="int8").reshape(2, 3),
        {"b": np.float32(0.1), "n": float("inf")},
        np.zeros((2, 0)),
    ],
)
def test_messages_come_out_as_they_were(value):
    back = processes._decode(processes._encode(value))
    assert repr(back) == repr(value) or back == {
        "b": float(np.float32(0.1)),
        "n": np.inf,
    }


def test_what_cannot_be_sent_is_named():
    with pytest.raises(TypeError, match="object cannot be sent"):
        processes._encode(object())
