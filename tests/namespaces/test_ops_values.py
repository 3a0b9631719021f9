"""Every op gives what Keras' gives, and the same shapes on symbols."""

import inspect
import operator
import re
from pathlib import Path

import jax
import numpy as np
import pytest

import keras
from exburn import ops
from exburn.symbol import Symbol, spec_of

from cases import CASES
