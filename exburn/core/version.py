"""ExBurn's version: that of the package, of the server and of what files say."""

__version__ = "0.1.0"
