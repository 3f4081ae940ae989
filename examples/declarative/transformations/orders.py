"""The topic `orders` becomes a table; its large orders go to the topic `large-orders`.

Sparrow needs no import here: Spark finds `format("sparrow")` by itself. The broker's address and
the credentials come from the environment (SPARROW_URL, SPARROW_TOKEN, …).
"""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()

SCHEMA = "id BIGINT, customer STRING, amount DOUBLE"


@dp.table
def orders() -> DataFrame:
    """Return every message of the topic, once."""
    messages = (
        spark.readStream.format("sparrow").option("subscribe", "orders").option("startingOffsets", "earliest")
    )
    order = f.from_json(f.col("value").cast("string"), SCHEMA).alias("order")
    return messages.load().select("timestamp", order).select("timestamp", "order.*")


dp.create_sink("large_orders", "sparrow", {"topic": "large-orders"})


@dp.append_flow(target="large_orders")
def large() -> DataFrame:
    """Return orders of more than 100, by customer, as JSON."""
    large_orders = spark.readStream.table("orders").where("amount > 100")
    return large_orders.select(
        f.col("customer").alias("key"), f.to_json(f.struct("id", "amount")).alias("value")
    )
