"""The local platform: the same resources as on Kubernetes, run as processes on loopback.

`isthmus local up FILE...` plans the resources as the operator does, writes one configuration file per
router and leaves a supervisor running that starts the routers, restarts one that ends by itself, and
follows the next `up`. `isthmus local down` ends exactly the recorded processes.

`state.py` knows the files, `deploy.py` turns resources into them, `supervisor.py` is the process that
obeys them, `probe.py` asks the routers, `commands.py` is the command line.
"""
