"""What no public name shows: tests look inside a filter or a claim through these functions only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bloomredis.operations.claims.requests import ClaimRequest


def inside(seen: Any) -> Any:
    """Return the operations of a filter."""
    return seen._operations


def client_of(seen: Any) -> Any:
    """Return the client of a filter."""
    return seen._client


def handle_of(stored: Any, record: Any) -> Any:
    """Return what a filter's state knows of a record."""
    return stored._handle_of(record)


def lock_of(locked: Any) -> Any:
    """Return the lock of an object's pending calls, or of a pool."""
    return locked._lock


def idle(pool: Any) -> Any:
    """Return the list of a pool's idle connections, which redis-py shows to nobody."""
    return pool._available_connections


def take(pool: Any, connection: Any) -> Any:
    """Take a certain idle connection, as another caller of the pool may."""
    idle(pool).remove(connection)
    pool._in_use_connections.add(connection)
    return connection


def renewed(seen: Any, claims: Iterable[Any]) -> Any:
    """Renew claims now, as the timer does; return the error of each, or an awaitable of them."""
    return seen._run(inside(seen).renew_many([claim._state for claim in claims]))


def commit_once(claim: Any) -> None:
    """Commit a claim with a single attempt, as a call that is interrupted before its retry."""
    state = claim._state
    state.end()
    claim._filter._run(inside(claim).attempt_one(ClaimRequest("commit", state)))
