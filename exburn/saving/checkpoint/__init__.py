"""Checkpoints of training runs: folders that are whole or not there."""

from exburn.saving.checkpoint.directory import (
    Checkpoint,
    CheckpointDirectory,
    Saved,
    saved_at,
)
from exburn.saving.checkpoint.writer import CheckpointWriter

__all__ = [
    "Checkpoint",
    "CheckpointDirectory",
    "CheckpointWriter",
    "Saved",
    "saved_at",
]
