"""The Isthmus router: an AMQP 1.0 message router on the proton engine."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("isthmus")
except PackageNotFoundError:  # run from a source tree that is not installed
    __version__ = "0.0.0"
