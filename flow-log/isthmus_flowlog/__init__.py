"""The flow log: what routers tell of what flows through them, collected and kept as Parquet files.

``docs/flow-schema.md`` describes the files, ``docs/flow-records.md`` what routers send.
"""
