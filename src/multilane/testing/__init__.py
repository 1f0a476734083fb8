"""The guarantees of consuming, as objects that judge a stream of events: for tests of engines and of applications.

Thread: none (pure), except `journal`, which writes and reads files.
"""
