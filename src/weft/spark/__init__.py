"""The pipeline on Spark: matching, aggregation, tuning. Nothing of Spark is imported before it is used."""

from weft.spark.match import Prepared as Prepared
from weft.spark.match import Strategy as Strategy
from weft.spark.match import match as match
from weft.spark.match import prepare as prepare
from weft.spark.output import Output as Output
from weft.spark.session import session as session
from weft.spark.subscriptions import Subscriptions as Subscriptions
from weft.spark.subscriptions import subscriptions as subscriptions
