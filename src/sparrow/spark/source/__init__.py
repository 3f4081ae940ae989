"""Topics as rows: what a batch or a micro-batch reads is planned on the driver, and read by tasks.

schema       which columns, of which types
starts       where reading begins and ends, of the options
offsets      how far a stream is, as JSON
limits       how much of what is there a micro-batch takes
planning     ranges of offsets → tasks: large ones split, small ones packed
topics       what the driver asks the broker
batch, stream, pushdown     what Spark calls on the driver
reading      what it calls in a task
rows         decoded records → the columns of the schema
loss         records that are gone
"""
