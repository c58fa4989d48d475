"""Items are claimed, and their claims committed, released and extended."""
