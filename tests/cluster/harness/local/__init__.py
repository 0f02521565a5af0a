"""The cluster built from Go modules: control plane and nodes in namespaces of this machine."""
