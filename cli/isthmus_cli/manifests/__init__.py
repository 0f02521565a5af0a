"""Reading the files a person wrote: YAML with several resources, and every mistake in it with its place.

`load(["network.yaml", "more/"]) -> Manifests`, or a ManifestError that lists all problems as
`file:line: document 2, Router "east": spec.listeners[0].port: what is wrong`.
"""

from .load import ManifestError, Manifests, load

__all__ = ["ManifestError", "Manifests", "load"]
