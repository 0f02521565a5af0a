"""The `FlowAnalysis` kind: a Spark job over a flow log, once or by a schedule."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from .base import Condition, ListMap, Metadata, Model, ObjectName, Rule, checked_time
from .pods import ImageName, PodTemplate, Quantity

RunState = Literal["Pending", "Running", "Succeeded", "Failed"]
MOMENT = r"^\d{4}-\d{2}-\d{2}[Tt]\d{2}:\d{2}:\d{2}(\.\d{1,9})?([Zz]|[+-]\d{2}:\d{2})$"
Moment = Annotated[str, Field(max_length=40, pattern=MOMENT, json_schema_extra={"format": "date-time"})]
StatusMoment = Annotated[Moment, AfterValidator(checked_time)]
DURATION = r"^[1-9][0-9]{0,5}(m|h|d)$"
CRON = r"^(@(hourly|daily|weekly|monthly|yearly|annually|midnight)|\S+ \S+ \S+ \S+ \S+)$"
RESERVED = (
    "spark.master",
    "spark.app.",
    "spark.submit.",
    "spark.kubernetes.",
    "spark.driver.host",
    "spark.driver.memory",
    "spark.executor.cores",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.dynamicAllocation.enabled",
    "spark.dynamicAllocation.initialExecutors",
    "spark.dynamicAllocation.maxExecutors",
    "spark.dynamicAllocation.minExecutors",
    "spark.dynamicAllocation.shuffleTracking.enabled",
    "spark.eventLog.dir",
    "spark.eventLog.enabled",
    "spark.hadoop.fs.s3a.endpoint",
    "spark.local.dir",
    "spark.authenticate",
    "spark.network.auth.",
    "spark.network.crypto.",
    "spark.ui.",
)
"""What the operator sets itself; prefixes."""
SAFE_SPARK_KEYS = (
    "spark.cleaner.periodicGC.interval",
    "spark.default.parallelism",
    "spark.dynamicAllocation.cachedExecutorIdleTimeout",
    "spark.dynamicAllocation.executorIdleTimeout",
    "spark.dynamicAllocation.schedulerBacklogTimeout",
    "spark.dynamicAllocation.sustainedSchedulerBacklogTimeout",
    "spark.eventLog.compress",
    "spark.eventLog.rolling.enabled",
    "spark.eventLog.rolling.maxFileSize",
    "spark.excludeOnFailure.",
    "spark.executor.heartbeatInterval",
    "spark.files.maxPartitionBytes",
    "spark.hadoop.fs.s3a.attempts.maximum",
    "spark.hadoop.fs.s3a.block.size",
    "spark.hadoop.fs.s3a.connection.establish.timeout",
    "spark.hadoop.fs.s3a.connection.maximum",
    "spark.hadoop.fs.s3a.connection.timeout",
    "spark.hadoop.fs.s3a.fast.upload.active.blocks",
    "spark.hadoop.fs.s3a.multipart.size",
    "spark.hadoop.fs.s3a.multipart.threshold",
    "spark.hadoop.fs.s3a.path.style.access",
    "spark.hadoop.fs.s3a.readahead.range",
    "spark.hadoop.fs.s3a.retry.interval",
    "spark.hadoop.fs.s3a.retry.limit",
    "spark.hadoop.fs.s3a.threads.max",
    "spark.io.compression.lz4.blockSize",
    "spark.io.compression.zstd.level",
    "spark.io.encryption.enabled",
    "spark.locality.wait",
    "spark.locality.wait.",
    "spark.memory.fraction",
    "spark.memory.storageFraction",
    "spark.network.timeout",
    "spark.rdd.compress",
    "spark.reducer.maxBlocksInFlightPerAddress",
    "spark.reducer.maxReqsInFlight",
    "spark.reducer.maxSizeInFlight",
    "spark.rpc.askTimeout",
    "spark.rpc.lookupTimeout",
    "spark.shuffle.compress",
    "spark.shuffle.file.buffer",
    "spark.shuffle.io.maxRetries",
    "spark.shuffle.io.retryWait",
    "spark.shuffle.spill.compress",
    "spark.speculation",
    "spark.speculation.",
    "spark.sql.adaptive.enabled",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes",
    "spark.sql.adaptive.autoBroadcastJoinThreshold",
    "spark.sql.adaptive.coalescePartitions.",
    "spark.sql.adaptive.skewJoin.",
    "spark.sql.autoBroadcastJoinThreshold",
    "spark.sql.broadcastTimeout",
    "spark.sql.files.maxPartitionBytes",
    "spark.sql.files.minPartitionNum",
    "spark.sql.files.openCostInBytes",
    "spark.sql.shuffle.partitions",
    "spark.stage.maxConsecutiveAttempts",
    "spark.task.cpus",
    "spark.task.maxFailures",
)
"""Settings that only tune: no code, no files, no hosts, no identities. What ends with a dot is a prefix."""
SPARK_KEY = "^spark[.][A-Za-z0-9_.-]+$"
SPARK_VALUE = r"^[^\x00-\x1f\x7f]*$"


def _moment(text: str) -> datetime:
    return datetime.fromisoformat(text.upper())


def _settable(key: str) -> bool:
    return re.fullmatch(SPARK_KEY, key) is not None and not key.startswith(RESERVED)


class FlowLogRef(Model):
    """A FlowLog in the same namespace."""

    name: ObjectName
    """Name of the FlowLog."""


class Window(Model):
    """What time is looked at."""

    last: Annotated[str, Field(max_length=8, pattern=DURATION)] | None = None
    """The time before the start of the run, for example `90m`, `24h` or `7d`."""

    from_: Annotated[Moment | None, Field(alias="from")] = None
    """Its beginning."""

    to: Moment | None = None
    """Its end; the start of the run when absent."""

    rules: ClassVar = (
        Rule(
            "has(self.last) != has(self.from)",
            "exactly one of window.last and window.from must be set",
            ".last",
            lambda self: (self.last is None) != (self.from_ is None),
        ),
        Rule(
            "has(self.from) || !has(self.to)",
            "window.to needs window.from",
            ".to",
            lambda self: self.from_ is not None or self.to is None,
        ),
        Rule(
            "!has(self.to) || timestamp(self.from) < timestamp(self.to)",
            "window.to must be after window.from",
            ".to",
            lambda self: self.to is None or self.from_ is None or _moment(self.from_) < _moment(self.to),
        ),
    )


class Driver(Model):
    """The pod that plans the work and writes the report."""

    memory: Quantity = "2Gi"
    """Of the pod; something more than half of it is the heap."""

    cpu: Quantity = "500m"
    """Reserved for the pod."""


class Executors(Model):
    """The pods that do the work."""

    instances: Annotated[int, Field(ge=1, le=1000)] = 2
    """How many; with `maxInstances` as many at first."""

    max_instances: Annotated[int, Field(ge=1, le=1000)] | None = None
    """Spark makes up to so many while there is work for them, and gives back those without any (dynamic allocation)."""

    cores: Annotated[int, Field(ge=1, le=128)] = 1
    """Tasks at the same time, of each."""

    memory: Quantity = "2Gi"
    """Of each pod; three quarters of it are the heap, but at least 384 MiB are not."""

    cpu: Quantity | None = None
    """Reserved for each pod; as many as `cores` when absent."""

    rules: ClassVar = (
        Rule(
            "!has(self.maxInstances) || self.maxInstances >= self.instances",
            "executors.maxInstances must not be less than executors.instances",
            ".maxInstances",
            lambda self: self.max_instances is None or self.max_instances >= self.instances,
        ),
    )


class History(Model):
    """What is kept of runs."""

    reports: Annotated[int, Field(ge=1, le=10_000)] = 30
    """Folders with tables and report, the newest ones; and event logs of Spark."""

    jobs: Annotated[int, Field(ge=0, le=50)] = 3
    """Jobs with their pods and logs, of a schedule; as many that failed as that succeeded."""


class FlowAnalysisSpec(Model):
    """What is analysed, when, and with how much."""

    flow_log_ref: FlowLogRef
    """The FlowLog that is read. Tables and report are written beside it, below `analyses/<name>/`."""

    window: Window = Window(last="24h")
    """What time is looked at; the last 24 hours when absent."""

    bucket_seconds: Annotated[int, Field(ge=1, le=86400)] = 60
    """Length of the intervals of rates and latencies over time."""

    baseline_days: Annotated[int, Field(ge=0, le=90)] = 7
    """Earlier days whose same hours say what is usual; 0: anomalies are not looked for."""

    incremental: bool = False
    """Each run reads only what has come since the one before (Structured Streaming with a checkpoint), and adds it to
    the sums. The window ends with the run: it must be `last`."""

    schedule: Annotated[str, Field(max_length=128, pattern=CRON)] | None = None
    """When it runs, as of cron: `0 * * * *`. Without a schedule it runs once, and again whenever the specification or
    the annotation `isthmus.dev/run` changes."""

    time_zone: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Of `schedule`, for example `Europe/Berlin`; UTC when absent."""

    concurrency_policy: Literal["Forbid", "Replace", "Allow"] = "Forbid"
    """What happens if a run is due while the one before is still going on: it is left out, takes its place, or runs
    beside it."""

    suspend: bool = False
    """No run begins."""

    retries: Annotated[int, Field(ge=0, le=20)] = 2
    """Of a run that fails, by new pods. What an executor or its node loses, Spark does again by itself."""

    deadline_seconds: Annotated[int, Field(ge=60, le=604_800)] = 21_600
    """A run that takes longer has failed."""

    driver: Driver = Driver()
    """The pod that plans the work and writes the report."""

    executors: Executors = Executors()
    """The pods that do the work."""

    history: History = History()
    """What is kept of runs."""

    spark_conf: (
        Annotated[
            dict[str, Annotated[str, Field(max_length=4096, pattern=SPARK_VALUE)]], Field(max_length=64)
        ]
        | None
    ) = None
    """Further settings of Spark, but for those of master, application, user interface and Kubernetes. Settings that do
    more than tune are refused unless the installation allows them (`restrictions.sparkConf` of the chart)."""

    image: ImageName | None = None
    """Image in place of the operator's default for analyses."""

    pod_template: PodTemplate | None = None
    """Merged over the generated pod templates of driver and executors. The containers are called `driver` and
    `executor`."""

    rules: ClassVar[Any] = (
        Rule(
            "!has(self.timeZone) || has(self.schedule)",
            "timeZone needs schedule",
            ".timeZone",
            lambda self: self.time_zone is None or self.schedule is not None,
        ),
        Rule(
            "!has(self.incremental) || !self.incremental || !has(self.window) || has(self.window.last)",
            "incremental needs window.last",
            ".window",
            lambda self: not self.incremental or self.window.last is not None,
        ),
        Rule(
            "!has(self.incremental) || !self.incremental || !has(self.concurrencyPolicy)"
            " || self.concurrencyPolicy == 'Forbid'",
            "incremental needs concurrencyPolicy Forbid: two runs cannot share a checkpoint",
            ".concurrencyPolicy",
            lambda self: not self.incremental or self.concurrency_policy == "Forbid",
        ),
        Rule(
            f"!has(self.sparkConf) || self.sparkConf.all(key, key.matches('{SPARK_KEY}') && "
            f"!key.matches('^({'|'.join(RESERVED).replace('.', '[.]')})'))",
            "sparkConf must have names that begin with spark. and none that the operator sets: "
            + ", ".join(f"{prefix}*" for prefix in RESERVED),
            ".sparkConf",
            lambda self: all(map(_settable, self.spark_conf or ())),
        ),
    )


class Finding(Model):
    """One thing that a run has found."""

    severity: Literal["info", "warning", "critical"]
    """How much it matters."""

    kind: Annotated[str, Field(max_length=64)] = ""
    """What it is about, as one word for machines."""

    text: Annotated[str, Field(max_length=1024)]
    """What was found, for people."""


class Progress(Model):
    """How far a run is, as Spark tells."""

    stages_done: Annotated[int, Field(ge=0)] = 0
    """Stages that are done, of the jobs that have begun."""

    stages: Annotated[int, Field(ge=0)] = 0
    """Stages of these jobs."""

    tasks_done: Annotated[int, Field(ge=0)] = 0
    """Tasks that are done."""

    tasks: Annotated[int, Field(ge=0)] = 0
    """Tasks of these jobs."""

    doing: Annotated[str, Field(max_length=256)] = ""
    """What is being computed."""


class Run(Model):
    """One run."""

    name: Annotated[str, Field(max_length=253)]
    """Name of its Job."""

    state: RunState
    """`Pending` (no pod runs yet), `Running`, `Succeeded` or `Failed`."""

    started_at: StatusMoment | None = None
    """When its Job began."""

    ended_at: StatusMoment | None = None
    """When it was over."""

    duration_seconds: Annotated[int, Field(ge=0)] | None = None
    """How long it took."""

    message: Annotated[str, Field(max_length=1024)] = ""
    """Why it failed, or what it waits for."""

    attempts: Annotated[int, Field(ge=0)] = 0
    """Pods that have failed."""

    deliveries: Annotated[int, Field(ge=0)] | None = None
    """Messages from clients that it has counted."""

    report: Annotated[str, Field(max_length=1500)] | None = None
    """Where its report is."""


class FlowAnalysisStatus(Model):
    """Observed state of an analysis."""

    observed_generation: Annotated[int, Field(ge=0)] = 0
    """The generation of the specification this status is about."""

    conditions: Annotated[list[Condition], Field(max_length=16), ListMap("type")] | None = None
    """`Configured` (its references resolve and its objects are as they should be), `Submitted` (there has been a run),
    `Succeeded` (the last one that is over did), `Ready` (it is configured, and the last run did not fail)."""

    state: Literal["Pending", "Running", "Succeeded", "Failed", "Scheduled", "Suspended"] | None = None
    """Of the newest run; of a schedule between runs `Scheduled` or `Suspended`."""

    progress: Progress | None = None
    """Of the run that is going on."""

    percent: Annotated[int, Field(ge=0, le=100)] | None = None
    """Tasks done, of those of the jobs that have begun."""

    runs: Annotated[list[Run], Field(max_length=10), ListMap("name")] | None = None
    """The last ones, the newest first."""

    last_run_at: StatusMoment | None = None
    """When the newest one began."""

    findings: Annotated[list[Finding], Field(max_length=20)] | None = None
    """What the last one that succeeded has found, the most important first."""

    headline: Annotated[str, Field(max_length=256)] | None = None
    """The first of the findings, or why the last run failed."""

    report: Annotated[str, Field(max_length=1500)] | None = None
    """Where the report of the last one that succeeded is."""


class FlowAnalysis(Model):
    """An analysis of a flow log: traffic, latency, rotations, topology, relay sites and what is wrong with them."""

    kind_name: ClassVar = "FlowAnalysis"

    metadata: Metadata
    spec: FlowAnalysisSpec
    """Desired state."""

    status: FlowAnalysisStatus | None = None
    """Observed state, written by the operator only."""

    @property
    def name(self) -> str:
        return self.metadata.name
