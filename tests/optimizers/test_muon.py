"""Tests of ``exburn.optimizers.muon``."""

SAME = [
    ("Muon", {}),
    ("Muon", {"learning_rate": 0.05, "nesterov": False, "adam_weight_decay": 0.3}),
    ("Muon", {"exclude_embeddings": False, "exclude_layers": ["kern"], "ns_steps": 3}),
    ("Muon", {"rms_rate": None, "adam_lr_ratio": 0.3, "weight_decay": None}),
]
