"""Layers that run over time."""

from exburn.layers.recurrent.bidirectional import Bidirectional
from exburn.layers.recurrent.conv_lstm import ConvLSTM1D, ConvLSTM2D, ConvLSTM3D
from exburn.layers.recurrent.gru import GRU, GRUCell
from exburn.layers.recurrent.lstm import LSTM, LSTMCell
from exburn.layers.recurrent.rnn import RNN
from exburn.layers.recurrent.simple_rnn import SimpleRNN, SimpleRNNCell
from exburn.layers.recurrent.stacked import StackedRNNCells
from exburn.layers.recurrent.time_distributed import TimeDistributed

__all__ = [
    "GRU",
    "LSTM",
    "RNN",
    "Bidirectional",
    "ConvLSTM1D",
    "ConvLSTM2D",
    "ConvLSTM3D",
    "GRUCell",
    "LSTMCell",
    "SimpleRNN",
    "SimpleRNNCell",
    "StackedRNNCells",
    "TimeDistributed",
]
