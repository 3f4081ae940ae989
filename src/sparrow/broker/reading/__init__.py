"""Reading: one fetch, many partitions as one stream, subscriptions, waiting at ends of topics."""
