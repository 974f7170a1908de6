"""Object storage: objects by URL, a local cache of them, uploads and leases.

A bucket has no rename and no lock. So the layers above write objects first and the
manifest last, and hold a lease instead of a lock. They read and write local files,
which are fetched before and uploaded after.
"""
