"""The composition root: applications, producers and error consumers in this process."""
