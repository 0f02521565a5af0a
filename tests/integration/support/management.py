"""A client of `$management`."""

from __future__ import annotations

from typing import Any

from proton import Message
from tests.integration.support.client import Client
from tests.integration.support.links import Receiver, Sender


class Manager:
    """A client of `$management`, of the router it is connected to or of another one."""

    def __init__(self, client: Client, target: str = "$management") -> None:
        self.replies: Receiver = client.receiver(None, dynamic=True, credit=100, accept=True)
        self.requests: Sender = client.sender(target).await_credit()
        self.count = 0

    def post(self, operation: str, body: Any = None, **properties: Any) -> int:
        """Send a request without waiting; its correlation id."""
        self.count += 1
        message = Message(
            reply_to=self.replies.address,
            correlation_id=self.count,
            properties={"operation": operation, **properties},
            body={} if body is None else body,
        )
        self.requests.await_credit().send(message, settled=True)
        return self.count

    def request(self, operation: str, body: Any = None, **properties: Any) -> Message:
        """Send a request and wait for its response."""
        number = self.post(operation, body, **properties)
        response = self.replies.next().message
        assert response.correlation_id == number
        return response

    def query(self, entity_type: str, *names: str, **properties: Any) -> list[dict[str, Any]]:
        """Rows of an entity type."""
        body = self.request(
            "QUERY", {"attributeNames": list(names)}, entityType=entity_type, **properties
        ).body
        return [dict(zip(body["attributeNames"], row, strict=True)) for row in body["results"]]
