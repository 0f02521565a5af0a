"""Help for the tests of a network on a cluster: clients that run in pods, what routers say of themselves."""
