"""The scripts of docs/distribution.md for SLURM, Kubernetes and Ray."""

import importlib.util
import json
import os
import socket
import stat
import subprocess
import sys

import pytest
from tests.project.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "distribution.md"
# Two tasks of one host, as srun would start them; it ends with the worst status.
SRUN = """#!/usr/bin/env bash
[ "$1" = --kill-on-bad-exit=1 ] && shift
export SLURM_STEP_NODELIST=localhost SLURM_NTASKS=2 SLURM_STEP_NUM_NODES=1
for i in 0 1; do SLURM_PROCID=$i SLURM_LOCALID=$i "$@" & tasks+=($!); done
worst=0
for task in "${tasks[@]}"; do
    wait "$task" || { status=$?; [ "$status" -gt "$worst" ] && worst=$status; }
done
exit "$worst"
"""


@pytest.fixture
def files(tmp_path):
    """The page's files, in a folder."""
    for info, _, text in blocks(PAGE):
        if "file=" in info:
            (tmp_path / info.split("file=")[1]).write_text(text)
    return tmp_path


def test_the_batch_script_is_one_that_a_shell_reads(files):
    subprocess.run(["bash", "-n", str(files / "train.sbatch")], check=True)
    lines = (files / "train.sbatch").read_text().splitlines()
    options = [line.split()[1] for line in lines if line.startswith("#SBATCH")]
    assert {option.split("=")[0] for option in options} >= {
        *("--nodes", "--ntasks-per-node", "--gpus-per-node", "--requeue", "--signal")
    }
    # Options after the first command would be plain comments.
    last = max(i for i, line in enumerate(lines) if line.startswith("#SBATCH"))
    assert all(not line or line[0] == "#" for line in lines[:last])


def test_the_pods_of_the_job_set_find_process_0(files):
    yaml = pytest.importorskip("yaml", reason="comes with the tests' other packages")
    whole = yaml.safe_load((files / "train.yaml").read_text())
    assert whole["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
    assert whole["kind"] == "JobSet"
    name, spec = whole["metadata"]["name"], whole["spec"]
    (job,) = spec["replicatedJobs"]
    indexed = job["template"]["spec"]
    assert job["replicas"] == 1 and indexed["completionMode"] == "Indexed"
    assert indexed["backoffLimit"] == 0 and spec["failurePolicy"]["maxRestarts"] > 0
    pod = indexed["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    given = {entry["name"]: entry for entry in container["env"]}
    host, port = given["KERAS_DISTRIBUTION_JOB_ADDRESSES"]["value"].split(":")
    assert host == f"{name}-{job['name']}-0-0.{name}"
    assert container["ports"] == [{"containerPort": int(port)}]
    count = int(given["KERAS_DISTRIBUTION_NUM_PROCESSES"]["value"])
    assert count == indexed["completions"] == indexed["parallelism"]
    source = given["KERAS_DISTRIBUTION_PROCESS_ID"]["valueFrom"]["fieldRef"]
    assert "job-completion-index" in source["fieldPath"]
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_the_batch_script_trains_in_two_processes_and_comes_back(files):
    tools = files / "bin"
    tools.mkdir()
    (tools / "srun").write_text(SRUN)
    (tools / "scontrol").write_text(f'#!/bin/sh\necho "$@" >> {files}/asked\n')
    (tools / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    for tool in tools.iterdir():
        tool.chmod(tool.stat().st_mode | stat.S_IXUSR)
    with socket.socket() as free:  # JAX makes a port of the job's number
        free.bind(("", 0))
        number = free.getsockname()[1] % 4096
    environment = environment_of(
        PATH=f"{tools}{os.pathsep}{os.environ['PATH']}",
        SLURM_JOB_ID=str(number),
        RUN_FOLDER=str(files / "runs"),
    )

    def submit() -> subprocess.CompletedProcess:
        return subprocess.run(
            ["bash", "train.sbatch"],
            cwd=files,
            env=environment,
            capture_output=True,
            text=True,
            timeout=240,
        )

    done = submit()
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Epoch 10/10") == 1  # of process 0 alone
    assert list((files / "runs" / "checkpoints").iterdir())
    assert not (files / "asked").exists()
    (files / "train.py").write_text("raise SystemExit(143)")  # as after SIGTERM
    assert submit().returncode == 143
    assert (files / "asked").read_text() == f"requeue {number}\n"


@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None,
    reason="Ray is not installed: pip install 'exburn[ray]'",
)
def test_the_script_for_ray_trains(files):
    done = subprocess.run(
        [sys.executable, "on_ray.py", str(files / "run")],
        cwd=files,
        env=environment_of(RAY_TMPDIR="/tmp"),
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (printed,) = (s for s in done.stdout.splitlines() if s.startswith("["))
    losses = json.loads(printed)
    assert len(losses) == 10 and losses[-1] < losses[0]


def environment_of(**more: str) -> dict[str, str]:
    """What a user's process has, on a machine without GPUs."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    common = {"JAX_PLATFORMS": "cpu", "EXBURN_COMPILATION_CACHE": "off"}
    return os.environ | common | {"PYTHONPATH": os.pathsep.join(paths)} | more
