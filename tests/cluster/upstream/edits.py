"""
What is changed in a copy of Kueue's sources, so that its suites start Kyu instead of Kueue's own controllers.

Functions that set up a controller record their settings. No controller runs in the process of the suite.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

RECORD = "sigs.k8s.io/kueue/pkg/kyurecord"
SCRAPE = f"{RECORD}/scrape"


class Edit(NamedTuple):
    """A text of a source file that is there exactly once, and its replacement."""

    path: str
    text: str
    replacement: str


def after(path: str, text: str, added: str) -> Edit:
    return Edit(path, text, f"{text}\n{added}")


QUEUES, CACHE, JOBS = "pkg/cache/queue/manager.go", "pkg/cache/scheduler/cache.go", "pkg/controller/jobframework"
SCHEDULER, MULTIKUEUE = "pkg/scheduler/scheduler.go", "pkg/controller/admissionchecks/multikueue/controllers.go"
WORKLOADS = "m.workloadInfoOptions = append(m.workloadInfoOptions, workload."

EDITS = (
    after(
        "pkg/controller/core/core.go",
        "func SetupControllers(mgr ctrl.Manager, qManager *qcache.Manager, cc *schdcache.Cache,"
        " cfg *configapi.Configuration, opts SetupControllersOpts) (string, error) {",
        "\tkyurecord.Core(cfg)",
    ),
    Edit(
        f"{JOBS}/reconciler.go",
        "\t\topt(&options)\n\t}\n\treturn options",
        "\t\topt(&options)\n\t}\n"
        "\tkyurecord.Jobs(options.ManageJobsWithoutQueueName, options.ManagedJobsNamespaceSelector,\n"
        "\t\tsets.List(options.LabelKeysToCopy), sets.List(options.EnabledExternalFrameworks))\n"
        "\treturn options",
    ),
    after(
        f"{JOBS}/reconciler.go",
        "\t\to.WaitForPodsReady = waitforpodsready.Enabled(cfg)",
        '\t\tkyurecord.Set("waitForPodsReady", cfg)',
    ),
    after(
        f"{JOBS}/reconciler.go",
        "func (r *genericReconciler) SetupWithManager(mgr ctrl.Manager) error {",
        "\tkyurecord.Kind(r.newJob().GVK())",
    ),
    after(f"{JOBS}/integrationmanager.go", "func EnableIntegration(name string) {", "\tkyurecord.Framework(name)"),
    after(
        "pkg/controller/jobs/pod/pod_controller.go",
        "func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {",
        "\tkyurecord.Framework(FrameworkName)",
    ),
    after(QUEUES, "\t\tm.admissionFairSharingConfig = cfg", '\t\tkyurecord.Set("admissionFairSharing", cfg)'),
    after(
        QUEUES,
        f"\t\t{WORKLOADS}WithExcludedResourcePrefixes(excludedPrefixes))",
        '\t\tkyurecord.Set("resources.excludeResourcePrefixes", excludedPrefixes)',
    ),
    after(
        QUEUES,
        f"\t\t{WORKLOADS}WithResourceTransformations(transforms))",
        '\t\tkyurecord.Set("resources.transformations", transforms)',
    ),
    after(
        QUEUES,
        "\t\tm.resourceMetricsEnabled = enabled",
        '\t\tkyurecord.Set("metrics.enableClusterQueueResources", enabled)',
    ),
    Edit(
        SCHEDULER,
        "\tif options.resourceFormatter == nil {",
        '\tkyurecord.Scheduler()\n\tif options.fairSharing != nil {\n\t\tkyurecord.Set("fairSharing",'
        ' options.fairSharing)\n\t}\n\tif options.quotaCheckStrategy != "" {\n\t\tkyurecord.Set('
        '"resources.quotaCheckStrategy", options.quotaCheckStrategy)\n\t}\n\tif options.resourceFormatter == nil {',
    ),
    Edit(SCHEDULER, "\tgo wait.UntilWithBackoff(ctx, s.schedule)", "\t_ = wait.UntilWithBackoff"),
    Edit(
        MULTIKUEUE,
        "\thelper, err := admissioncheck.NewMultiKueueStoreHelper",
        '\tkyurecord.Set("multiKueue.gcInterval", options.gcInterval.String())\n'
        '\tkyurecord.Set("multiKueue.origin", options.origin)\n'
        '\tkyurecord.Set("multiKueue.workerLostTimeout", options.workerLostTimeout.String())\n'
        '\tkyurecord.Set("multiKueue.dispatcherName", options.dispatcherName)\n'
        '\tkyurecord.Set("multiKueue.clusterProfile", options.clusterProfileConfig)\n'
        '\tkyurecord.Set("namespace", namespace)\n'
        "\thelper, err := admissioncheck.NewMultiKueueStoreHelper",
    ),
    Edit(
        "pkg/features/kube_features.go",
        "func SetFeatureGateDuringTest(tb testing.TB, f featuregate.Feature, value bool) {\n",
        "func differing() map[string]bool {\n\tresult := map[string]bool{}\n"
        "\tfor f, specs := range defaultVersionedFeatureGates {\n"
        "\t\tif value := Enabled(f); value != specs[len(specs)-1].Default {\n\t\t\tresult[string(f)] = value\n\t\t}\n"
        "\t}\n\treturn result\n}\n\n"
        "func SetFeatureGateDuringTest(tb testing.TB, f featuregate.Feature, value bool) {\n"
        "\ttb.Cleanup(func() { kyurecord.Gates(differing()) })\n"
        "\tdefer func() { kyurecord.Gates(differing()) }()\n",
    ),
    Edit(
        "pkg/features/kube_features.go",
        "featureGates map[featuregate.Feature]bool) {\n\tfor fg, enable := range featureGates {",
        "featureGates map[featuregate.Feature]bool) {\n\ttb.Cleanup(func() { kyurecord.Gates(differing()) })\n"
        "\tdefer func() { kyurecord.Gates(differing()) }()\n\tfor fg, enable := range featureGates {",
    ),
    Edit(
        "pkg/util/testing/metrics/metrics.go",
        "\tif v == nil {\n\t\treturn nil\n\t}\n\n\tch := make(chan prometheus.Metric)\n\tret := []MetricDataPoint{}\n",
        "\tret := []MetricDataPoint{}\n\tfound, values := scrape.Series(v, labels)\n\tfor i := range found {\n"
        "\t\tret = append(ret, MetricDataPoint{Labels: found[i], Value: values[i]})\n\t}\n\treturn ret\n}\n\n"
        "func collectHere(v prometheus.Collector, labels map[string]string) []MetricDataPoint {\n"
        "\tch := make(chan prometheus.Metric)\n\tret := []MetricDataPoint{}\n",
    ),
    # A machine may be slower than that of Kueue's own tests.
    Edit("test/util/constants.go", "\tTimeout      = 10 * time.Second", "\tTimeout      = 25 * time.Second"),
    Edit("test/util/metrics.go", '"k8s.io/component-base/metrics/testutil"', f'testutil "{SCRAPE}"'),
    Edit(
        "test/integration/framework/framework.go",
        "\t\tcfg, err = f.testEnv.Start()\n",
        "\t\tprepare(f.testEnv)\n\t\tcfg, err = f.testEnv.Start()\n",
    ),
    Edit(
        "test/integration/framework/framework.go",
        "\t\tmanagerSetup(managerCtx, mgr)\n",
        "\t\tprocess := startKyu(cfg, f.testEnv, func() { managerSetup(managerCtx, mgr) })\n",
    ),
    Edit(
        "test/integration/framework/framework.go",
        "\t\t\terr := mgr.Start(managerCtx)\n"
        '\t\t\tgomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred(), "failed to run manager")\n',
        "\t\t\t<-managerCtx.Done()\n\t\t\tprocess.stop()\n",
    ),
)


def apply_all(copy: Path) -> None:
    """Change the copy of the sources. An upstream release with other texts fails here, by name."""
    for edit in EDITS:
        path = copy / edit.path
        source = path.read_text()
        if source.count(edit.text) != 1:
            raise ValueError(f"{edit.path} has {source.count(edit.text)} times the text {edit.text!r}")
        path.write_text(with_import(source.replace(edit.text, edit.replacement)))
    for path in webhook_sources(copy):
        path.write_text(with_import(recording_kinds(path.read_text())))
    for path in (copy / "test/integration").rglob("*_test.go"):
        source = path.read_text()
        path.write_text(source.replace('"k8s.io/component-base/metrics/testutil"', f'testutil "{SCRAPE}"'))


def webhook_sources(copy: Path) -> Iterator[Path]:
    for path in copy.glob("pkg/controller/job*/**/*webhook.go"):
        if "WithLogConstructor(" in path.read_text():
            yield path


def recording_kinds(source: str) -> str:
    """Record the kind of a webhook where its logger is made."""
    plain = "WithLogConstructor(roletracker.WebhookLogConstructor(options.RoleTracker))"
    if plain in source:
        options = "\toptions := jobframework.ProcessOptions(opts...)\n"
        return source.replace(options, f"{options}\tkyurecord.Framework(FrameworkName)\n", 1)
    return re.sub(
        r"(WithLogConstructor\((?:jobframework\.)?WebhookLogConstructor\()(.+?), (\w+\.RoleTracker)\)",
        r"\1kyurecord.Known(\2), \3)",
        source,
    )


def with_import(source: str) -> str:
    if "scrape.Series" in source:
        return source.replace("import (\n", f'import (\n\t"{SCRAPE}"\n', 1)
    if "kyurecord." not in source or f'"{RECORD}"' in source:
        return source
    return source.replace("import (\n", f'import (\n\t"{RECORD}"\n', 1)
