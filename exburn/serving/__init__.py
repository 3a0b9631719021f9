"""Answers requests in the process: rows of many callers share compiled batches."""

from exburn.serving.answer import Answer
from exburn.serving.hooks import emit
from exburn.serving.server import Serving
from exburn.serving.statistics import BucketStatistics, ServingStatistics

__all__ = ["Answer", "BucketStatistics", "Serving", "ServingStatistics", "emit"]
