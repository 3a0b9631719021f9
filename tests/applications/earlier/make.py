"""Makes the files beside this one: of ExBurn 0.1 before its decoders had one network
(commit b62bf96b), with their scores of ``IDS``.

    git worktree add /tmp/then b62bf96b && cp tests/applications/earlier/make.py /tmp
    PYTHONPATH=/tmp/then python -P /tmp/make.py

They stay as they are: what was written then must be read for as long as its format is.
"""

from pathlib import Path

import numpy as np

import exburn
from exburn.applications import GPT2, Llama

FOLDER = Path(__file__).parent
IDS = np.arange(12).reshape(2, 6) % 11
SIZES = {"vocabulary_size": 11, "layers": 2, "width": 8, "mlp_width": 12}

if __name__ == "__main__":
    exburn.set_random_seed(3)
    scaled = {"key_value_heads": 2, "rope_base": 500.0, "rope_factor": 2.0}
    tied = {"sliding_window": 3, "tie_embeddings": True}
    models = {
        "llama.exburn": Llama(**SIZES, heads=4, **scaled),
        "mistral.keras": Llama(
            **SIZES, heads=2, **tied, generation={"end_tokens": [2, 3]}
        ),
        "gpt2.exburn": GPT2(11, layers=2, width=8, heads=2, positions=16, dropout=0.2),
    }
    scores = {}
    for file, model in models.items():
        model.save(FOLDER / file)
        scores[Path(file).stem] = np.asarray(model(IDS))
    np.savez_compressed(FOLDER / "scores.npz", **scores)
