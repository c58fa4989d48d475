"""Clients and their connections: URLs, pools, and the direct way to send a call."""
