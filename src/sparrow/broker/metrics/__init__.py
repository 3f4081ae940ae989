"""What a monitor sees of a broker: the table of all metrics, and how their values are gathered without holding the loop."""
