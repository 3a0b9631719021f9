"""Runs a program in which ``import keras`` means ExBurn.

python -m exburn.as_keras script.py --its arguments
python -m exburn.as_keras -m package.module
"""

import sys

import exburn
from exburn.utils.keras_alias import run_as_keras

if __name__ == "__main__":
    sys.exit(run_as_keras(exburn, sys.argv[1:]))
