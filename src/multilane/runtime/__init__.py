"""What all engines share: an app's functions made ready, their lanes, producers and gauges."""
