"""The command line: `multilane`.

Thread: application.
"""
