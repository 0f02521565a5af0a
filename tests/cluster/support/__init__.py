"""Help for the tests on a cluster: clients that run in pods, what routers say of themselves, a web server to try."""
