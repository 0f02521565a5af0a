"""The compiled part of the router; everything else of the distribution is laid down in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

KERNEL = "router-image/isthmus_router/amqp/kernel/drain.pyx"

setup(
    ext_modules=[
        # Optional: without a compiler, the router forwards everything in Python.
        Extension("isthmus_router.amqp.kernel.drain", [KERNEL], extra_compile_args=["-g0"], optional=True)
    ]
    if Path(KERNEL).exists()  # not in the image of the operator
    else []
)
