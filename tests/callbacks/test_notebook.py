"""Progress and curves in a real kernel, as the saved notebook shows them."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TRAIN = """
import time
from exburn.callbacks import CallbackList, History, ProgressBar

history = History()
params = {"epochs": 30, "steps": 4, "batch_size": 8, "verbose": "auto"}
callbacks = CallbackList([history, ProgressBar()], params=params)
callbacks.on_train_begin()
for epoch in range(30):
    callbacks.on_epoch_begin(epoch)
    for step in range(1, 5):
        time.sleep(0.002)
        callbacks.on_chunk_end(step, {"loss": 0.5})
    callbacks.on_epoch_end(epoch, {"loss": 0.25, "val_loss": 0.5})
callbacks.on_train_end()
callbacks.on_exit()
"""


SUMMARY = """
import exburn
model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
model.summary()
"""
SHOWN = {  # a value at the end of a cell, and what its HTML has
    "model": "Total params: 15",
    "history": "<polyline",
    "exburn.utils.plot_model(model, None)": "<svg",
}


def test_saved_notebook_keeps_the_progress_and_the_figure(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    new = nbformat.v4
    dashboard = TRAIN.replace("ProgressBar", "Dashboard")
    sources = TRAIN, "history.plot('loss')", SUMMARY, dashboard, *SHOWN
    cells = [new.new_code_cell(source) for source in sources]
    notebook = new.new_notebook(cells=cells)
    resources = {"metadata": {"path": str(ROOT)}}
    nbclient.NotebookClient(notebook, timeout=60, resources=resources).execute()
    (progress,) = notebook.cells[0].outputs
    text = progress.data["text/plain"]
    assert text.startswith("… 18 earlier epochs\nEpoch 19/30  ━")
    assert "loss: 0.2500 · val_loss: 0.5000" in text.splitlines()[-1]
    assert progress.data["text/html"].startswith("<pre")
    (live,) = notebook.cells[3].outputs
    picture = live.data["image/svg+xml"]
    assert "epoch 30 of 30" in picture and picture.count("<polyline") >= 2
    assert "finished" in live.data["text/plain"]
    (figure,) = notebook.cells[1].outputs
    assert figure.data["image/png"]
    (table,) = notebook.cells[2].outputs
    assert table.data["text/html"].startswith("<pre")
    assert "Total params: 15" in table.data["text/plain"]
    for cell, text in zip(notebook.cells[4:], SHOWN.values(), strict=True):
        (value,) = cell.outputs
        assert text in value.data["text/html"] and value.data["text/plain"][0] == "<"
