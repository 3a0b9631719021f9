"""Tests of ``exburn.optimizers.schedule_free``."""

SAME = [
    ("ScheduleFreeAdamW", {}),
    ("ScheduleFreeAdamW", {"warmup_steps": 10, "weight_decay": 0.1, "beta_1": 0.7}),
]
