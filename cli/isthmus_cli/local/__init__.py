"""The local platform: the same resources as on Kubernetes, run as processes on loopback.

`isthmus local up FILE...` plans the resources as the operator does, writes one configuration file per
router and leaves a supervisor running that starts the routers, restarts one that ends by itself, goes on with
rotations, and follows the next `up`. `isthmus local down` ends exactly the recorded processes.

`state.py` knows the files, `wanted.py` what `up` was given, `deploy.py` turns that into files of routers,
`rotation.py` sees to their certificates, `supervisor.py` is the process that obeys, `probe.py` asks the routers,
`lifecycle.py` is what the commands do, `commands.py` the command line.
"""
