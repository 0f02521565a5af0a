"""The view of a namespace of a Kubernetes cluster: from the custom resources, the pods, and the routers.

Only reading rights on Isthmus resources are needed; with those on pods and `pods/proxy` the routers
themselves are asked too, through the API server.
"""
