"""The continuous flow: long-lived Spark tasks, each a member of the application's groups, with lanes of its own."""
