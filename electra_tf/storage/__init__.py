"""Object storage: objects by URL, and copies of them in local files.

A bucket has no rename and no lock, so files are uploaded first and the manifest last.
"""
