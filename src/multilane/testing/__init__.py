"""What consuming guarantees, as objects that judge a stream of events: for tests of an engine, and of an application.

Thread: none (pure), but for `journal`, which writes and reads files.
"""
