"""Where a failed record goes: headers, the way through retry and error topics, back-off, and publishing its copy."""
