"""The pipeline on Spark: matching, aggregation, tuning. PySpark is not imported before it is used.

Everything is imported here at once, because some functions have the names of their modules.
"""

from weft.pipeline.match_job import Strategy as Strategy
from weft.pipeline.output import Output as Output
from weft.spark.aggregate import Aggregated as Aggregated
from weft.spark.aggregate import aggregate as aggregate
from weft.spark.broker_sink import BrokerSink as BrokerSink
from weft.spark.broker_target import BrokerTarget as BrokerTarget
from weft.spark.expression import column_of as column_of
from weft.spark.files import read_frame as read_frame
from weft.spark.files import read_stream as read_stream
from weft.spark.files import write_frame as write_frame
from weft.spark.formats import register as register
from weft.spark.match import Prepared as Prepared
from weft.spark.match import match as match
from weft.spark.match import prepare as prepare
from weft.spark.profile import profile as profile
from weft.spark.session import session as session
from weft.spark.statistics import statistics as statistics
from weft.spark.stream import MatchStream as MatchStream
from weft.spark.stream import Watermark as Watermark
from weft.spark.stream import match_stream as match_stream
from weft.spark.stream_tables import stream_errors as stream_errors
from weft.spark.stream_tables import stream_metrics as stream_metrics
from weft.spark.stream_tables import stream_results as stream_results
from weft.spark.subscriptions import Subscriptions as Subscriptions
from weft.spark.subscriptions import subscriptions as subscriptions
from weft.spark.tune import tune as tune
