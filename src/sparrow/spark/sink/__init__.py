"""Rows of Spark into topics, each batch exactly once.

Tasks write their rows into stages of the broker, which readers do not see. When all tasks of a
batch are done, the driver asks the broker once to make the stages that they name visible, all
together, and to note the number of the batch. A repetition of the batch after that finds its number
and changes nothing. Stages that no commit names, such as the rows of a task that was killed and run
again, are dropped with the commit, or when their time is over.

    schema     columns that are written, and faults of the others
    plan       everything that a task must know
    context    sink, query, run and batch that a task writes for
    task       rows → batches → a stage
    committer  the one call at the end, from the driver
    batch, stream   the two writers as Spark wants them
"""
