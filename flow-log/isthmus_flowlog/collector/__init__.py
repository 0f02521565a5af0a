"""The collector: hears the flow records of a network of routers and keeps them as a flow log.

State machines (`wire`, `session`, `gaps`, `assembly`, `rows`, `plan`) are told what happened and when. Thin drivers
carry out: `amqp` on a thread of its own, `store` (journal; Parquet files, compaction, retention) and `http`.
`docs/flow-log.md` describes it all.
"""
