"""Schedules: jobs that the broker publishes to a queue at the times of a cron expression or in an
interval.
"""
