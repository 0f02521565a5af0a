from collections.abc import Callable
from typing import Any

from isthmus_router.amqp.kernel.state import ConnectionState
from isthmus_router.core.model import Link

def key(pn: Any) -> Any: ...
def handle(address: Any) -> Any: ...
def advance(link: Link) -> None: ...
def equip(pn: Any, size: int) -> None: ...
def forget(connection: ConnectionState) -> None: ...
def release(pn: Any) -> None: ...
def retain(connection: ConnectionState, pn: Any) -> None: ...
def release_written(out: Link, pn: Any) -> None: ...
def written(deliveries: list[Any]) -> list[Any]: ...
def no_user_in(message: bytes) -> bool: ...

class Drain:
    EMPTY: int
    TO_DO: int
    DONE: int
    LATER: int

    def __init__(
        self,
        forwarder: Any,
        slice_end: Callable[[float], float],
        delivery: type,
        stream: type,
        branch: type,
        passed: type,
        *,
        most_tag_bytes: int,
        most_unsettled: int,
        queued_high: int,
        chunk_bytes: int,
        session_outgoing_high: int,
        stream_outgoing_high: int,
        outgoing_places: tuple[int, int],
        delivery_bytes: int,
    ) -> None: ...
    def drain(self, collector: Any, links: dict[Any, Link], end: float = 0) -> int: ...
