"""docs/from_exburn.md: every function of the reference has a row, and its call runs."""

import queue
import re
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import exburn

PAGE = Path(__file__).resolve().parents[2] / "docs" / "from_exburn.md"

#: The functions that the reference systems' documents list, section by section.
REFERENCE = {
    "ExBurn": "configure! cuda_available? default_device device_info device_name "
    "describe nif_loaded? nif_function_count smoke_test summary version",
    "ExBurn.Model": "new compile forward predict compute_loss parameters loss_function "
    "optimizer weight_decay update_params clone summary info forward_pattern freeze "
    "unfreeze frozen? frozen_layers to_device quantize benchmark save load "
    "serialize_params deserialize_params export_params import_params fit",
    "ExBurn.Training": "fit train_step compute_gradients profile_step evaluate "
    "data_loader :adam :sgd :rmsprop {:step {:exponential {:cosine :cross_entropy :mse "
    ":binary_cross_entropy LoggingCallback.log EarlyStoppingCallback.wait "
    "CheckpointCallback.every HistoryCallback.new HistoryCallback.get_history "
    "ReduceLROnPlateauCallback.new WarmupCallback.linear lr_schedule: clip_norm: "
    "clip_value: weight_decay: accumulate_gradients: accuracy: nesterov: warmup: "
    "validation_data: callbacks: verbose: grad_method: track_accuracy",
    "ExBurn.Dataset": "split loader normalize normalize_with_stats one_hot stats",
    "ExBurn.Serving and Nx.Serving": "new build run status with_batch_size "
    "with_timeout batched_run streaming batch_keys client_preprocessing",
    "Tensors": "from_nx to_nx from_nx_batch to_nx_batch from_binary free numel rank "
    "ref shape type nx_type_to_burn burn_type_to_nx abs add broadcast concat conv2d "
    "div dot exp eye iota layer_norm log matmul max mean min mul neg new ones pow "
    "random relu "
    "reshape sigmoid slice softmax sqrt sub sum tanh to_binary to_cpu to_gpu transpose "
    "zeros gpu_available device_name rand dropout cross_entropy mse Defn.Compiler "
    "ExBurn.Backend ExBurn.Error",
    "ExCubecl and CubeclBridge": "buffer buffer! read read! shape dtype size "
    "device_info device_count kernels version run_kernel pipeline pipeline_add "
    "pipeline_add_struct pipeline_run pipeline_free submit poll wait Command init "
    "destroy available? available_backends allocate_gpu free host_to_device "
    "device_to_host execute compile_kernel device_capabilities device_summary "
    "memory_info memory_total memory_used supported_dtypes synchronize async_submit "
    "async_poll async_wait",
    "Dala.ML, ExBurn.DalaML": "predict benchmark setup status verify "
    "available_backends screen_callback fit_with_progress fit_with_accuracy "
    "standard_callbacks agent_history_callback supervise validate",
    "Nx": "vectorize hook tensor",
}


def sections() -> dict[str, list[list[str]]]:
    """The rows of three cells under each heading."""
    found: dict[str, list[list[str]]] = {}
    heading = ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            heading = line[3:]
        elif line.startswith("| ") and not line.startswith("|---"):
            cells = [cell.strip() for cell in line.strip("|").split(" | ")]
            if len(cells) == 3 and cells[2] != "a call":
                found.setdefault(heading, []).append(cells)
    return found


SECTIONS = sections()


@pytest.mark.parametrize("section", REFERENCE)
def test_every_function_has_a_row(section):
    words = set()
    for name, _, _ in SECTIONS[section]:
        for word in re.findall(r"[\w.:{!?]+", name):
            words |= {word, word.rpartition(".")[2]}
    missing = [name for name in REFERENCE[section].split() if name not in words]
    assert not missing


def test_every_row_has_one_call():
    for section, rows in SECTIONS.items():
        for row in rows:
            assert re.fullmatch(r"`[^`]+`", row[2]), (section, row)


@pytest.fixture
def namespace(tmp_path):
    rng = np.random.default_rng(0)
    model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
    model.compile("adam", "cross_entropy", seed=0)
    yield {
        "callbacks": exburn.callbacks,
        "compute": exburn.compute,
        "datasets": exburn.datasets,
        "exburn": exburn,
        "jax": jax,
        "jnp": jnp,
        "layers": exburn.layers,
        "model": model,
        "np": np,
        "ops": exburn.ops,
        "optax": optax,
        "partial": partial,
        "queue": queue,
        "tmp": tmp_path,
        "x": rng.normal(size=(10, 4)).astype(np.float32),
        "y": rng.integers(0, 3, 10),
        "a": rng.normal(size=(3, 3)).astype(np.float32),
        "b": rng.uniform(0.5, 1, (3, 3)).astype(np.float32),
    }
    jax.config.update("jax_default_device", None)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_call_runs(section, namespace, monkeypatch, tmp_path):
    """In the order of the page. A call that is a comparison must be true."""
    monkeypatch.chdir(tmp_path)
    for name, _, cell in SECTIONS[section]:
        source = cell.strip("`")
        try:
            try:
                code = compile(source, "<page>", "eval")
            except SyntaxError:
                exec(source, namespace)
                continue
            value = eval(code, namespace)
            assert not (isinstance(value, bool | np.bool_) and not value)
        except Exception as error:
            error.add_note(f"{section}: {name}: {source}")
            raise
