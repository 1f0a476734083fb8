"""Files of an app's configuration: YAML in, a tree whose every value knows its place out."""
