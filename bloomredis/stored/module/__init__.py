"""A filter in a key of the server's Bloom filter module."""
