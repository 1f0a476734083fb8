"""The continuous flow: long-lived Spark tasks, each a member of the application's groups, with lanes of its own.

It has no worker app: a worker runs the process engine as `app/member.py` makes it.
"""
