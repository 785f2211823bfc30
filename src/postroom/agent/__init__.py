"""The Message Agent: finds who subscribes, and publishes; in process (direct lane) and on Spark's executors."""
