"""Rows of Spark into topics, each batch exactly once.

Tasks write their rows into stages of the broker, which readers do not see. When all tasks of a batch are done, the driver asks the broker once to make the stages that they
name visible, all together, and to note the number of the batch. A batch that comes again after that finds its number and changes nothing. What no commit names, such as
the rows of a task that was killed and run again, is dropped with the commit, or when its time is over.

    schema     which columns are written, and what is wrong with the others
    plan       all that a task must know
    context    which sink, query, run and batch a task writes for
    task       rows → batches → a stage
    committing the one call at the end, from the driver
    batch, stream   the two writers as Spark wants them
"""
