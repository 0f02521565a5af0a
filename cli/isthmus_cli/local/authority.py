"""The certificate authority of a local network, in a file of its folder that only its user can read."""

from __future__ import annotations

import base64
import binascii
from datetime import datetime

from isthmus_cli.errors import CliError
from isthmus_operator.authority import Authority, UnusableAuthorityError, new_authority, renewed

from .state import NetworkState


def ensure(state: NetworkState, now: datetime) -> Authority:
    """The authority, which is made when there is none and replaced near its end. Raises CliError."""
    name = f"Isthmus {state.name}"
    found = read(state)
    current = renewed(found, name, now) if found is not None else new_authority(name, now)
    if current != found:
        data = {key: base64.b64encode(content).decode() for key, content in current.data().items()}
        state.write_authority(data)
    return current


def read(state: NetworkState) -> Authority | None:
    """The authority; None when none has been made. Raises CliError."""
    document = state.authority()
    if document is None:
        return None
    try:
        return Authority.of({key: base64.b64decode(text, validate=True) for key, text in document.items()})
    except (UnusableAuthorityError, binascii.Error) as error:
        raise CliError(
            f"{state.authority_file} is not a usable certificate authority: {error}; delete it, and `isthmus local up` "
            "makes a new one"
        ) from None
