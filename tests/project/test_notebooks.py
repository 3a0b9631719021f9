"""Every notebook runs from top to bottom, as a reader would run it.

Many train for seconds until they have learned what they show. `.ci/run` shortens those:
each epoch has two steps, a sweep and `improve` two epochs, and what is asserted of the
results is not asked. Programs of all but the quickstart are compiled as quickly as
those of other tests, which takes half the time.
"""

import re
import shutil
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
TRAINING = {  # most of the time
    "03_regression_normalization",
    "04_timeseries_lstm_gru",
    "05_text_classification",
    "08_vae_custom_train_step",
    "09_siamese_multi_input",
    "10_multi_output",
    "11_transfer_by_freezing",
    "12_gan_two_optimizers",
    "19_sweep",
    "20_fine_tuning_pretrained",
    "28_recommender",
    "31_chats",
    "32_text_server",
}
# What a notebook needs beside the extra `dev`: packages of the extra `gallery`, a
# program, a folder of Debian's. CI has none of them, and leaves these notebooks out.
NEEDS = {
    "02_colour_augmentation": ["skimage"],
    "06_language_model": [],
    "07_anomalies": ["skimage"],
    "21_segmentation": ["skimage"],
    "22_detection": [],
    "23_diffusion": ["skimage"],
    "24_contrastive": ["/usr/share/datasets/fashion-mnist"],
    "25_audio_keywords": ["espeak-ng"],
    "26_graphs": ["ase"],
    "27_policy_gradient": ["gymnasium"],
    "29_tables_and_boosting": ["vega_datasets"],
    "30_probabilistic_forecast": ["vega_datasets"],
    "31_chats": ["tokenizers", "jinja2"],
    "32_text_server": ["tokenizers", "jinja2", "openai", "llguidance"],
}
SHORT_EPOCHS = """
import functools
import exburn

def shorten(fit):
    def fit_shortly(self, x=None, *args, steps_per_epoch=None, **options):
        rows, batch = getattr(x, "shape", [64])[0], options.get("batch_size") or 32
        steps = min(steps_per_epoch or 2, 2, -(-rows // batch))
        return fit(self, x, *args, steps_per_epoch=steps, **options)
    return fit_shortly

def shorten_epochs(train):
    @functools.wraps(train)
    def train_shortly(*args, epochs=1, **options):
        return train(*args, epochs=min(epochs, 2), **options)
    return train_shortly

exburn.Model.fit = shorten(exburn.Model.fit)
exburn.Model.improve = shorten_epochs(exburn.Model.improve)
exburn.sweep = exburn.tuning.sweep = shorten_epochs(exburn.sweep)
del exburn, functools, shorten, shorten_epochs
"""


def test_there_are_notebooks():
    stems = {path.stem for path in NOTEBOOKS}
    assert stems > TRAINING | set(NEEDS) | {"quickstart"}


@pytest.mark.parametrize(
    "path",
    NOTEBOOKS,
    ids=lambda path: path.stem,
)
def test_notebook_runs(path, tmp_path, request):
    skip_without_needs(path)
    if path.stem in TRAINING | {"quickstart"}:
        request.getfixturevalue("users_compilation")
    run(read(path), tmp_path)


@pytest.mark.parametrize(
    "path", [p for p in NOTEBOOKS if p.stem in TRAINING], ids=lambda path: path.stem
)
def test_notebook_runs_with_short_epochs(path, tmp_path):
    skip_without_needs(path)
    nbformat = pytest.importorskip("nbformat")
    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.source = re.sub(r"^( *)assert ", r"\1_ = ", cell.source, flags=re.M)
    notebook.cells.insert(0, nbformat.v4.new_code_cell(SHORT_EPOCHS))
    run(notebook, tmp_path)


def skip_without_needs(path):
    for name in NEEDS.get(path.stem, []):
        if not (Path(name).is_dir() or shutil.which(name)):
            pytest.importorskip(name)


def read(path):
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def run(notebook, folder):
    nbclient = pytest.importorskip("nbclient")
    client = nbclient.NotebookClient(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code" and cell.source]
    assert code and all(cell.execution_count for cell in code)
