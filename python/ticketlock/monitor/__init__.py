"""The contention monitor: what a process's locks report about themselves, read from outside, and how it is shown.

`source` reads (a live process, a recording), `model` turns two readings into a snapshot, and everything else is a function of
snapshots: views, exports, reports.
"""
