"""Training with other frameworks, and logging to experiment trackers.

Each module needs an optional package, such as ``pip install 'llpkit[lightning]'``, and the rest of
llpkit imports it only on demand.
"""
