"""The data pipeline: Spark Structured Streaming. The only room that imports pyspark, and only where it is used."""
