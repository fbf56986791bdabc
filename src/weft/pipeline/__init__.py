"""Matching from files to files: the job, its files and its report, for any engine, and the engine on this machine.

`weft.spark` is the other engine. Nothing here imports pyspark.
"""
