"""Processes that record a run, each killed at a random moment, and what they leave.

    python tests/runs/kill_farm.py 1000 /tmp/farm

This process imports ExBurn once and forks; a child makes a run, or goes on with one
that was killed, and records epochs, checkpoints and reports as fast as it can. It tells
by a pipe what it has recorded: that must be there.
"""

import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from exburn.errors import ExBurnError
from exburn.runs import find, read, recorder
from exburn.runs.directory import CHECKPOINTS, RunDirectory
from exburn.runs.report import write_report
from exburn.saving.checkpoint.directory import CheckpointDirectory
from exburn.saving.checkpoint.manifest import read_manifest, verify_files

CONFIG = {"id": "x", "fit": {"epochs": 10**6, "steps": 4}, "model": {"name": "m"}}


def work(folder, goes_on, tell):
    """Records without end."""
    path = folder / "run"
    made = (
        RunDirectory.go_on(goes_on)
        if goes_on
        else RunDirectory.create(path, CONFIG, {})
    )
    begin = len(read(made.path).epochs)
    os.write(tell, f"{made.path}\n".encode())
    checkpoint = recorder.RunCheckpoint(made.path)
    watcher = recorder.RunRecorder(made, checkpoint)
    watcher.set_model(SimpleNamespace(stop_training=False, optimizer=None))
    watcher.set_params({"epochs": 10**6, "steps": 4, "batch_size": 8})
    watcher.on_train_begin()
    saved = CheckpointDirectory(made.path / CHECKPOINTS).open()
    for epoch in range(begin, 10**6):
        watcher.on_epoch_begin(epoch)
        watcher.on_chunk_end(4, {"loss": 1 / (epoch + 1)})
        watcher.on_epoch_end(epoch, {"loss": 1 / (epoch + 1), "val_loss": 0.5})
        os.write(tell, b"%d\n" % epoch)
        if epoch % 20 == 2:
            write_report(made.path)
        if epoch % 10 == 3:
            saved.write({"w": np.ones(100)}, {}, step=epoch)
            saved.prune(2)


def check(folder, told):
    """What is wrong with what a killed process left."""
    for path in folder.iterdir():
        if not path.name.startswith("."):
            run = read(path)
            if run.damaged or run.state != "killed":
                return f"{path}: {run.state}, {run.damaged} damaged lines"
            if [e["epoch"] for e in run.epochs] != list(range(len(run.epochs))):
                return f"{path}: epochs are missing"
            report = path / "report.html"
            if report.exists() and not report.read_text().endswith("</html>\n"):
                return f"{path}: the report is torn"
            # Not read: that starts threads here, and children would not be as alone.
            for listed in CheckpointDirectory(path / CHECKPOINTS).checkpoints():
                verify_files(listed.path, read_manifest(listed.path))
    if told and told[-1]:  # the last line may be torn: it was being told
        told = told[:-1]
    lines = [line for line in told if line]
    if lines:
        run = read(lines[0])
        if len(lines) > 1 and len(run.epochs) < int(lines[-1]) + 1:
            return f"{lines[0]}: told {lines[-1]}, recorded {len(run.epochs)}"
    return None


def main():
    count, folder = int(sys.argv[1]), Path(sys.argv[2])
    draw, wrong, epochs, checkpoints = random.Random(0), 0, 0, 0
    for number in range(count):
        runs = find(folder) if folder.exists() else []
        if len(runs) > 20:
            shutil.rmtree(folder)
            runs = []
        folder.mkdir(parents=True, exist_ok=True)
        goes_on = draw.choice(runs).path if runs and draw.random() < 0.5 else None
        reads, tells = os.pipe()
        child = os.fork()
        if not child:
            try:
                work(folder, goes_on, tells)
            finally:
                os._exit(9)
        os.close(tells)
        time.sleep(draw.choice([0.002, 0.01, 0.05, 0.2, 0.6, 3.0]) * draw.random())
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        with os.fdopen(reads) as pipe:
            told = pipe.read().split("\n")
        try:
            problem = check(folder, told)
        except (ExBurnError, OSError, ValueError) as error:
            problem = repr(error)
        if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
            problem = f"the child ended by itself: {status}"
        epochs += max(len(told) - 2, 0)
        checkpoints += len(list(folder.glob("run*/checkpoints/0*")))
        if problem:
            wrong += 1
            print(f"kill {number}: {problem}", flush=True)
    print(
        f"{count} kills, {wrong} wrong; {epochs} epochs were recorded, "
        f"{checkpoints} times a checkpoint was looked at"
    )


if __name__ == "__main__":
    main()
