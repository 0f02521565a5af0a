"""Flow records: what flows through the router, told to whoever collects it. ``docs/flow-records.md`` has the format."""
