"""Ops that act on every element by itself."""

from exburn.ops.elementwise.arithmetic import *
from exburn.ops.elementwise.bits import *
from exburn.ops.elementwise.comparison import *
from exburn.ops.elementwise.exponential import *
from exburn.ops.elementwise.trigonometry import *
