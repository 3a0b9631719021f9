"""Layers that run over time."""

from typing import TYPE_CHECKING

from exburn.core.lazy_names import importer

if TYPE_CHECKING:
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

_LAZY_NAMES = {
    "exburn.layers.recurrent.bidirectional": "Bidirectional",
    "exburn.layers.recurrent.conv_lstm": "ConvLSTM1D ConvLSTM2D ConvLSTM3D",
    "exburn.layers.recurrent.gru": "GRU GRUCell",
    "exburn.layers.recurrent.lstm": "LSTM LSTMCell",
    "exburn.layers.recurrent.rnn": "RNN",
    "exburn.layers.recurrent.simple_rnn": "SimpleRNN SimpleRNNCell",
    "exburn.layers.recurrent.stacked": "StackedRNNCells",
    "exburn.layers.recurrent.time_distributed": "TimeDistributed",
}

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = importer(__name__, _LAZY_NAMES)
