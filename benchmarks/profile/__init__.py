"""Profiles: one call broken down into stages of the client, the wire and the server."""
