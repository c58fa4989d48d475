"""Clients with a wrapped method, as instrumentation wraps it: the library uses them as they are."""

from __future__ import annotations

from typing import Any


def wrapped(client: Any) -> Any:
    """Return the client itself, whose `parse_response` is its own attribute from now on."""
    client.parse_response = client.parse_response
    return client


def is_wrapped(client: object) -> bool:
    """Return whether `wrapped` has changed a client."""
    return "parse_response" in vars(client)
