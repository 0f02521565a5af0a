"""The `isthmus` command: the local platform and the status views."""
