"""
Workflow: steps that wait for each other, each a job of its own in a queue.

A step is a command, which becomes a Job, or the manifest of any kind of job that ends. The controller makes the object
of a step when its dependencies are over, and the queue decides when the object starts. The status has one entry per
step, or per item of a step that is repeated for a list.

A Refusal tells that an API server does not take an object. It lives in memory only, beside the objects in the view.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from kyu.api.definitions.crds import PrinterColumn
from kyu.api.definitions.single import definition_of
from kyu.api.fields import Count, Field, Int32, ObjectName, Positive, ResourceList, Time, unique_by
from kyu.api.meta import Condition, Json, Kind, Object, Wire
from kyu.api.names import LABEL
from kyu.api.quantity import QuantityValue

GROUP = "kyu.dev"
VERSION = "v1alpha1"
MAX_STEPS = 1000
# Steps with all items of their lists. The status has an entry for each, and an object has at most 1.5 MiB.
MAX_ENTRIES = 2000
MAX_ITEMS = 1000
MAX_OUTPUT_BYTES = 1024
MAX_OUTPUT_BYTES_OF_ALL = 256 * 1024
MAX_STEP_NAME = 40

StepName: TypeAlias = Annotated[str, Field(min_length=1, max_length=MAX_STEP_NAME, pattern=f"^{LABEL}$")]
StepState: TypeAlias = Literal[
    "Waiting", "Queued", "Admitted", "Running", "Preempted", "Succeeded", "Failed", "Skipped"
]
WorkflowState: TypeAlias = Literal["Waiting", "Queued", "Running", "Suspended", "Succeeded", "Failed", "Cancelled"]
RunIf: TypeAlias = Literal["AllSucceeded", "AllFinished", "AnySucceeded", "AnyFailed"]

# The order in which states are counted and shown.
STEP_STATES: tuple[StepState, ...] = (
    "Waiting", "Queued", "Admitted", "Running", "Preempted", "Succeeded", "Failed", "Skipped",
)  # fmt: skip
ENDED: frozenset[str] = frozenset({"Succeeded", "Failed", "Skipped"})
# The condition of a Workflow that is over. Its reason is Succeeded, Failed, Cancelled or Invalid.
FINISHED = "Finished"


class ForEach(Wire, frozen=True):
    """A list; the step runs once for each of its items."""

    items: Annotated[tuple[str, ...], Field(list_type="atomic", max_items=MAX_ITEMS)] = ()
    """The items. $(item) stands for the item, $(item.KEY) for a member of an item that is a JSON object."""
    items_from: str = ""
    """Name of an earlier step whose output is the list, in JSON."""
    width: Positive | None = None
    """The most items at the same time; without it, all."""


class Retries(Wire, frozen=True):
    """Further attempts after a failure, with growing pauses."""

    limit: Annotated[Count, Field(required=True)] = 0
    """Number of further attempts."""
    backoff_seconds: Annotated[Count, Field(default=10)] = 10
    """Pause before the second attempt. Each further pause is twice as long."""
    max_backoff_seconds: Annotated[Count, Field(default=300)] = 300
    """The longest pause."""


class OutputCondition(Wire, frozen=True):
    """A condition on the output of an earlier step."""

    step: str
    """Name of the step."""
    key: str = ""
    """Member of the output, which is a JSON object; without it, the whole output."""
    operator: Literal["In", "NotIn"] = "In"
    """Whether the output must be one of the values, or none of them."""
    values: Annotated[tuple[str, ...], Field(list_type="atomic", min_items=1, max_items=100, required=True)] = ()
    """The values."""


class WorkflowStep(Wire, frozen=True):
    """A command or the manifest of a job, and the steps that it waits for."""

    name: StepName
    """Name of the step."""
    after: Annotated[tuple[str, ...], Field(list_type="set", max_items=MAX_STEPS)] = ()
    """Names of the steps that this one waits for."""
    run_if: RunIf = "AllSucceeded"
    """Outcomes of the earlier steps with which this one runs. Otherwise it is skipped."""
    when: Annotated[tuple[OutputCondition, ...], Field(list_type="atomic", max_items=100)] = ()
    """Conditions on outputs. If one does not hold, the step is skipped."""
    for_each: ForEach | None = None
    """A list; the step runs once for each of its items."""
    command: Annotated[tuple[str, ...], Field(list_type="atomic", max_items=1000)] = ()
    """Command and arguments. The step becomes a Job."""
    image: Annotated[str, Field(max_length=1024)] = ""
    """Image of the command; without it, that of the Workflow."""
    working_dir: Annotated[str, Field(max_length=4096)] = ""
    """Folder of the command; without it, that of the Workflow."""
    env: Annotated[dict[str, str], Field(max_properties=1000)] = {}
    """Environment variables of the command, beside those of the Workflow."""
    cpu: QuantityValue | None = None
    """Cores of the command; 1 by default."""
    memory: QuantityValue | None = None
    """Memory of the command, as request and limit."""
    requests: ResourceList = {}
    """Further resources of the command, such as nvidia.com/gpu."""
    count: Positive | None = None
    """Pods that start together: an Indexed Job of the command, or a group of Pods of the template."""
    template: dict[str, Any] | None = None
    """Manifest of a job of any kind that ends. The Workflow makes its name."""
    queue: ObjectName = ""
    """LocalQueue of the step; without it, that of the Workflow."""
    priority_class: ObjectName = ""
    """WorkloadPriorityClass of the step; without it, that of the Workflow."""
    retries: Retries | None = None
    """Further attempts after a failure; without them, those of the Workflow."""
    maximum_execution_time_seconds: Positive | None = None
    """Time limit of an attempt. It counts from admission, not while the step waits in its queue."""
    may_fail: bool = False
    """A failure of this step does not make the Workflow fail."""


class WorkflowSpec(Wire, frozen=True):
    queue: ObjectName = ""
    """LocalQueue of all steps that name no other."""
    priority_class: ObjectName = ""
    """WorkloadPriorityClass of all steps that name no other."""
    image: Annotated[str, Field(max_length=1024)] = ""
    """Image of all commands that name no other. On a cluster each command needs one."""
    working_dir: Annotated[str, Field(max_length=4096)] = ""
    """Folder of all commands that name no other."""
    env: Annotated[dict[str, str], Field(max_properties=1000)] = {}
    """Environment variables of all commands."""
    retries: Retries | None = None
    """Further attempts of all steps that say nothing else."""
    parallelism: Positive | None = None
    """The most steps that are queued or run at the same time; without it, all that are ready."""
    suspend: bool = False
    """Start no further steps. Steps that are queued or run go on."""
    cancel: bool = False
    """Stop all steps and end the Workflow."""
    retry: Count = 0
    """Raise this number to run failed steps again, and all that waited for them. `kyu workflow retry` does so."""
    steps: Annotated[
        tuple[WorkflowStep, ...], unique_by("name", min_items=1, max_items=MAX_STEPS), Field(required=True)
    ] = ()
    """The steps, in any order. They cannot change while the Workflow runs."""


class StepStatus(Wire, frozen=True):
    name: str
    """Name of the step; with the position of its item in brackets, if it is repeated for a list."""
    state: StepState = "Waiting"
    """Waiting for other steps; Queued, Admitted, Running or Preempted; Succeeded, Failed or Skipped."""
    reason: str = ""
    """The reason of the state, as one word."""
    message: str = ""
    """The reason of the state in words."""
    attempt: Int32 = 1
    """Number of the attempt, from 1."""
    object: str = ""
    """Name of the object of this attempt."""
    output: str = ""
    """The message that the first pod left in its termination log."""
    admitted_at: Time | None = None
    """Time of the last admission of this attempt."""
    finished_at: Time | None = None
    """Time at which the step was over."""
    retry_at: Time | None = None
    """Time of the next attempt."""
    missing_since: Time | None = None
    """Time at which the object was not found any more."""
    retries: Int32 = 0
    """Attempts that failed since the step was last started by hand."""


class StepCounts(Wire, frozen=True):
    """The number of steps in each state; each item of a list is a step."""

    total: Int32 = 0
    """All steps."""
    waiting: Int32 = 0
    """Waiting for other steps."""
    queued: Int32 = 0
    """In their queue."""
    admitted: Int32 = 0
    """Admitted, without a running pod."""
    running: Int32 = 0
    """Running."""
    preempted: Int32 = 0
    """Preempted, and in their queue again."""
    succeeded: Int32 = 0
    """Succeeded."""
    failed: Int32 = 0
    """Failed."""
    skipped: Int32 = 0
    """Skipped."""


class WorkflowStatus(Wire, frozen=True):
    state: WorkflowState = "Waiting"
    """State in one word."""
    conditions: Annotated[tuple[Condition, ...], unique_by("type", max_items=16)] = ()
    """Finished (Succeeded, Failed, Cancelled or Invalid), Suspended, and Blocked if rights cannot be checked."""
    counts: StepCounts = StepCounts()
    """The number of steps in each state."""
    progress: str = ""
    """Ended steps and all steps, such as 3/5."""
    steps: Annotated[tuple[StepStatus, ...], unique_by("name", max_items=MAX_ENTRIES)] = ()
    """The steps, in the order of the spec."""
    retry: Int32 = 0
    """The number of spec.retry that was acted on."""
    observed_generation: int = 0
    """Generation of the spec that was checked."""
    finished_at: Time | None = None
    """Time at which the Workflow was over."""


class Workflow(Object, frozen=True):
    """Steps that wait for each other, each a job of its own in a queue."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "Workflow", "workflows")

    spec: WorkflowSpec = WorkflowSpec()
    """The steps, and what they have in common."""
    status: WorkflowStatus = WorkflowStatus()
    """How far the steps are."""


class RefusedObject(Object, frozen=True):
    """An object that an API server refused, with the name and the owner of that object. ``at`` is in seconds."""

    KIND: ClassVar[Kind] = Kind(GROUP, VERSION, "RefusedObject", "refusedobjects")

    message: str = ""
    at: float = 0.0
    # Whether the same object can never be created.
    final: bool = True


COLUMNS = (
    PrinterColumn("State", ".status.state", "State of the Workflow"),
    PrinterColumn("Progress", ".status.progress", "Ended steps and all steps"),
    PrinterColumn("Failed", ".status.counts.failed", "Failed steps", "integer"),
    PrinterColumn("Age", ".metadata.creationTimestamp", "Time since it was created", "date"),
)


def definition() -> Json:
    """Return the CustomResourceDefinition of Workflow."""
    return definition_of(Workflow, ("wf",), COLUMNS)
