"""What happens when the device runs out of memory."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from typing import Any

from exburn.core.printing import amount_text, size_text
from exburn.errors import OutOfMemoryError
from exburn.models.arguments import first_batch
from exburn.models.planning import make_plan, with_rows
from exburn.module.traversal import iter_weights
from exburn.runtime.device import device_name
from exburn.runtime.donation import is_consumed
from exburn.runtime.failures import is_exhausted
from exburn.runtime.transfer import release_spare


@contextlib.contextmanager
def memory_errors(model: Any, op: str, dataset: Any, rows: int) -> Iterator[None]:
    """In the block, a device that runs out of memory is an ``OutOfMemoryError``."""
    try:
        yield
    except Exception as error:
        if not is_exhausted(error) or isinstance(error, OutOfMemoryError):
            raise
        release_spare()
        traceback.clear_frames(error.__traceback__)  # they hold data on the device
        raise _exhausted_error(model, op, dataset, rows, error) from error


def _exhausted_error(model, op, dataset, rows: int, error) -> OutOfMemoryError:
    details: dict[str, Any] = {"batch size": rows}
    plan, half = None, f"batch_size={max(rows // 2, 1)}"
    trainer = model._training_session.trainer
    kind = "train" if op in ("fit", "train_on_batch") else "predict"
    try:
        batch = with_rows(first_batch(dataset, trainer.holder.seed), rows)
        distribution = trainer.holder.placement.distribution
        plan = make_plan(
            trainer, kind, batch, rows, largest=True, distribution=distribution
        )
    except Exception as failure:  # the analysis needs memory, too
        details["no analysis"] = type(failure).__name__
    if plan is not None:
        details |= {
            "needed": size_text(plan.peak_bytes),
            "available": size_text(plan.available_bytes),
            "largest batch that fits": f"{plan.largest_batch:,}",
            "FLOPs of a step": amount_text(plan.flops),
        }
        if not plan.fits:
            half = f"batch_size={plan.largest_batch} or less"
            if not plan.largest_batch:
                half = "a smaller model or another device: one row does not fit"
    details["device"] = device_name()
    lines = str(error).strip().splitlines()
    details["said"] = lines[0] if lines else type(error).__name__
    more = (
        ", the same update from smaller batches (accumulate_gradients=…), "
        'model.remat("block_*") or dtype="mixed_bfloat16"'
        if kind == "train"
        else ' or dtype="bfloat16"'
    )
    if plan is not None and plan.mesh is not None:
        details["devices"] = f"{plan.mesh}; figures of each"
        if (
            kind == "train"
            and not trainer.holder.placement.distribution.divides_weights
        ):
            more += ', or compile(mesh="fsdp")'
    weights = [weight.get_raw_value() for _, weight, _ in iter_weights(model)]
    lost = any(map(is_consumed, weights))
    state = (
        "the program that failed has consumed the weights"
        if lost
        else "the model is as it was before this step"
    )
    raised = OutOfMemoryError(
        op,
        f"the device has not enough memory; {state}",
        details,
        hint=f"{'Load what was saved last, and try' if lost else 'Try'} {half}{more}.",
    )
    raised.plan = plan
    return raised
