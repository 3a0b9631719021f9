"""Improving a model by rewards of its own answers: ``Model.improve`` (GRPO).

A round goes through these, in this order:

| module | what it does |
|---|---|
| `prompts.py` | rows of texts, chats or tokens, checked before anything runs |
| `sampling.py` | answers to them, by the model as it is |
| `rewards.py` | the user's functions, and advantages within groups |
| `rollouts.py` | all of that, as the batches of a round |
| `policy_loss.py` | what their steps minimize |
| `improve.py` | the method, and its run in ``fit``'s loop |
"""

from exburn.models.improving.improve import improve

__all__ = ["improve"]
