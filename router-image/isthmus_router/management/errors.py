"""Management operations that fail, with the status code of the answer."""

from __future__ import annotations


class ManagementError(Exception):
    """A request answered with an error status."""

    status = 500


class BadRequestError(ManagementError):
    """The request is malformed or asks for something invalid."""

    status = 400


class ForbiddenError(ManagementError):
    """The operation is never allowed on this entity."""

    status = 403


class NotFoundError(ManagementError):
    """There is no such entity or attribute."""

    status = 404


class ConflictError(ManagementError):
    """There is such an entity already."""

    status = 409


class UnimplementedError(ManagementError):
    """The operation does not exist for this type."""

    status = 501
