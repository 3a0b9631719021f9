"""The options of a server, checked."""

import inspect

import pytest

from exburn.errors import ArgumentError, UnknownNameError
from exburn.serving import Server
from exburn.serving.http.options import ServerOptions
from exburn.serving.options import names_of

WRONG = {
    "max_body": ({"max_body": "8 parsecs"}, ArgumentError, "max_body must be a size"),
    "max_memory": ({"max_memory": 0}, ArgumentError, "max_memory must be a size"),
    "max_rows": ({"max_rows": 0}, ArgumentError, "max_rows"),
    "max_connections": ({"max_connections": 0}, ArgumentError, "max_connections"),
    "drain": ({"drain": -1}, ArgumentError, "drain must be a duration"),
    "timeout": ({"timeout": 5000}, ArgumentError, "timeout as a number is in seconds"),
    "host": ({"host": 3}, ArgumentError, "host must be text"),
    "port": ({"port": "a"}, ArgumentError, "port must be an integer"),
    "port below": ({"port": -1}, ArgumentError, "port must be from 0 to 65535"),
    "port above": ({"port": 65536}, ArgumentError, "port must be from 0 to 65535"),
    "api_keys": ({"api_keys": 3}, ArgumentError, "api_keys must be a list of texts"),
    "no api_keys": ({"api_keys": None}, ArgumentError, "received None"),
    "log_level": ({"log_level": "LOUD"}, ArgumentError, "log_level is one of"),
    "log_levels": ({"log_level": []}, ArgumentError, "log_level is one of"),
    "of models": ({"max_queue": 0}, ArgumentError, "max_queue"),
    "of Serving": ({"paddin": True}, UnknownNameError, "padding"),
    "of Server": ({"max_row": 3}, UnknownNameError, "max_rows"),
}


@pytest.mark.parametrize("name", WRONG)
def test_options_are_checked_before_a_model_is_compiled(name):
    options, error, text = WRONG[name]
    with pytest.raises(error, match=text):
        Server({"m": None}, **options)


def test_the_options_are_the_constructor_s():
    names = {*inspect.signature(Server).parameters} - {"models"}
    of_models = {"batch_size", "batch_timeout", "max_queue"}
    assert names - of_models == set(names_of(ServerOptions))


def test_a_server_of_the_same_arguments_has_the_same_options():
    with Server({}, port=0, timeout="90 min", padding=[32], api_keys="k" * 16) as one:
        arguments = one._options.arguments()
    assert arguments["timeout"] == 5400 and arguments["padding"] == [32]
    assert arguments["max_memory"] is None  # another machine has another memory
    assert Server({}, **arguments)._options == one._options
