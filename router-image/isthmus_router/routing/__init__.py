"""The inter-router routing protocol of an interior router: neighbours, link state, paths, mobile addresses.

:class:`~isthmus_router.routing.engine.RoutingEngine` is the way in; ``docs/routing.md`` has the protocol.
"""
