"""The webhook frontend: delivers the records of queues to URLs."""
