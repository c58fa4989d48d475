"""Clients and their connections: URLs, pools, and calls over pooled connections."""
