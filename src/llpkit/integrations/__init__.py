"""llpkit inside other training loops, and its runs in experiment trackers.

Nothing here is imported by the rest of the package until it is asked for, and each module needs its
own optional package: ``pip install 'llpkit[lightning]'``, for example.
"""
