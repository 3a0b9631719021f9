"""Ops that sum, order, search and count."""

from exburn.ops.reduction.nan import *
from exburn.ops.reduction.order import *
from exburn.ops.reduction.totals import *
