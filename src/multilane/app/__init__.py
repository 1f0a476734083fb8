"""The application: its listeners, its life, and how it is found, controlled and stopped."""
