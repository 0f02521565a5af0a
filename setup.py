"""The compiled part of the router; everything else of the distribution is laid down in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

MESSAGE = "router-image/isthmus_router/message"
AMQP = "router-image/isthmus_router/amqp"
SOURCES = {
    "isthmus_router.amqp.kernel.drain": (
        [f"{AMQP}/kernel/drain.pyx"],
        [str(file) for kind in ("*.pxd", "*.pxi") for file in sorted(Path(AMQP, "kernel").glob(kind))]
        + [f"{MESSAGE}/structure.pxd"],
    ),
    "isthmus_router.message.structure": ([f"{MESSAGE}/structure.py"], [f"{MESSAGE}/structure.pxd"]),
    "isthmus_router.amqp.sockets.compiled": ([f"{AMQP}/sockets/compiled.pyx"], [f"{AMQP}/sockets/pool.h"]),
}

setup(
    ext_modules=[
        # Optional: without a compiler, the router does the same in Python.
        Extension(name, sources, depends=depends, extra_compile_args=["-g0"], optional=True)
        for name, (sources, depends) in SOURCES.items()
    ]
    if Path(AMQP).exists()  # not in the image of the operator
    else []
)
