"""The pipeline on Spark: matching, aggregation, tuning. Nothing of Spark is imported before it is used."""

from weft.spark.session import session as session
