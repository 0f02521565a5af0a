"""The analysis of flow logs: a Spark job that reads what ``isthmus_flowlog`` keeps, and its report.

``docs/flow-analysis.md`` says what it computes, ``docs/flow-schema.md`` what it reads.
"""
