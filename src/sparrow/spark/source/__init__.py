"""Topics as rows: a batch or a micro-batch is planned on the driver, and read by tasks.

schema       columns and their types
starts       where reading begins and ends, from the options
offsets      the position of a stream, as JSON
limits       how many of the waiting records a micro-batch takes
plan         ranges of offsets → tasks: large ones split, small ones packed
topics       requests of the driver to the broker
batch, stream, pushdown     called by Spark on the driver
read_task    called by Spark in a task
rows         decoded records → the columns of the schema
loss         records that are gone
"""
