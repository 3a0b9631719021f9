"""One call for the predictions of any model, ExBurn's own or not."""

from exburn.models.interop.dispatch import predict

__all__ = ["predict"]
