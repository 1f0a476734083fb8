"""Lanes on the rows of any DataFrame: a function of the caller, one call at a time per key, its answers as columns.

The rows become records of a synthetic partition (one for each task, the row's number is the offset), so that the lanes
of every other engine call the function.
"""
