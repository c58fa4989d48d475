"""Adding and testing items: answers, retries, the local cache and the capacity."""
