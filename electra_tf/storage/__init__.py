"""Object storage: objects by URL, local mirrors of them, and leases.

A bucket has no rename and no lock. So files are pushed first and the manifest last, and
a writer holds a lease instead of a lock.
"""
