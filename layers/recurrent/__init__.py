"""Layers that run over time."""

from exburn.layers.recurrent.gru import GRU, GRUCell
from exburn.layers.recurrent.lstm import LSTM, LSTMCell
from exburn.layers.recurrent.rnn import RNN
from exburn.layers.recurrent.simple_rnn import SimpleRNN, SimpleRNNCell
from exburn.layers.recurrent.stacked import StackedRNNCells

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "GRUCell",
    "LSTMCell",
    "SimpleRNN",
    "SimpleRNNCell",
    "StackedRNNCells",
]
