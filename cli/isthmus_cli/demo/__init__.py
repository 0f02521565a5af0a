"""`isthmus demo`: two sites on this machine, real clients, and an account of what arrived.

`network.yaml` is the network, `clients.py` the clients, `commands.py` the story.
"""
