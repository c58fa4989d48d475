"""Items are added and tested: answers, retries, the local cache, the capacity."""
