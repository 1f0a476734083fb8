"""Files of an app's configuration: YAML in, out a tree in which every value knows its location."""
