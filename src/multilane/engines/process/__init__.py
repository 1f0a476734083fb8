"""The process engine: members of consumer groups on one event loop."""
