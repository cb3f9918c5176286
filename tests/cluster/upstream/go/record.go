// Package kyurecord keeps the settings that a suite gives to the controllers of Kueue, so that Kyu can be started with
// them instead. The functions that set up a controller call it; edits.py says which.
package kyurecord

import (
	"encoding/json"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	mutex sync.Mutex
	// Setup holds the lock of one setup. Suites with several clusters set them up at once.
	Setup       sync.Mutex
	settings    = map[string]any{}
	frameworks  = map[string]bool{}
	schedules   bool
	gates       = map[string]bool{}
	gateChanged = map[int]func(){}
	listeners   int
)

// Reset forgets what was recorded. The caller holds Setup.
func Reset() {
	mutex.Lock()
	defer mutex.Unlock()
	settings, frameworks, schedules = map[string]any{}, map[string]bool{}, false
}

// Set records the value at a path of Kueue's Configuration.
func Set(path string, value any) {
	mutex.Lock()
	defer mutex.Unlock()
	set(path, plain(value))
}

func set(path string, value any) {
	if value == nil {
		return
	}
	names := strings.Split(path, ".")
	target := settings
	for _, name := range names[:len(names)-1] {
		inner, ok := target[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			target[name] = inner
		}
		target = inner
	}
	target[names[len(names)-1]] = value
}

// Core records the Configuration of the core controllers. Defaults of Kueue are left to Kyu.
func Core(configuration any) {
	mutex.Lock()
	defer mutex.Unlock()
	given, _ := plain(configuration).(map[string]any)
	for _, name := range []string{
		"waitForPodsReady", "fairSharing", "admissionFairSharing", "resources", "objectRetentionPolicies",
		"multiKueue", "metrics", "manageJobsWithoutQueueName", "managedJobsNamespaceSelector",
	} {
		if value, ok := given[name]; ok && value != nil {
			settings[name] = merged(value, settings[name])
		}
	}
}

// merged returns a value with the fields that were recorded on their own.
func merged(given, recorded any) any {
	if recorded == nil {
		return given
	}
	outer, isOuter := given.(map[string]any)
	inner, isInner := recorded.(map[string]any)
	if !isOuter || !isInner {
		return recorded
	}
	for name, value := range inner {
		outer[name] = merged(outer[name], value)
	}
	return outer
}

// Jobs records the options of job controllers and job webhooks.
func Jobs(manageAll bool, selector labels.Selector, labelKeys, external []string) {
	mutex.Lock()
	defer mutex.Unlock()
	if manageAll {
		set("manageJobsWithoutQueueName", true)
	}
	if selector != nil {
		set("managedJobsNamespaceSelector", plain(selectorOf(selector)))
	}
	if len(labelKeys) > 0 {
		set("integrations.labelKeysToCopy", plain(labelKeys))
	}
	if len(external) > 0 {
		set("integrations.externalFrameworks", plain(external))
	}
}

func selectorOf(selector labels.Selector) metav1.LabelSelector {
	result := metav1.LabelSelector{}
	operators := map[string]metav1.LabelSelectorOperator{
		"in": metav1.LabelSelectorOpIn, "=": metav1.LabelSelectorOpIn, "==": metav1.LabelSelectorOpIn,
		"notin": metav1.LabelSelectorOpNotIn, "!=": metav1.LabelSelectorOpNotIn,
		"exists": metav1.LabelSelectorOpExists, "!": metav1.LabelSelectorOpDoesNotExist,
	}
	requirements, _ := selector.Requirements()
	for _, one := range requirements {
		result.MatchExpressions = append(result.MatchExpressions, metav1.LabelSelectorRequirement{
			Key: one.Key(), Operator: operators[string(one.Operator())], Values: one.ValuesUnsorted(),
		})
	}
	return result
}

// Kind records that the jobs of a kind have a controller or a webhook.
func Kind(gvk schema.GroupVersionKind) {
	name := strings.ToLower(gvk.Kind)
	if gvk.Group != "" && gvk.Group != "apps" {
		name = gvk.Group + "/" + name
	}
	Framework(name)
}

// Framework records the name of an integration.
func Framework(name string) {
	mutex.Lock()
	defer mutex.Unlock()
	frameworks[name] = true
}

// Scheduler records that the suite has a scheduler.
func Scheduler() {
	mutex.Lock()
	defer mutex.Unlock()
	schedules = true
}

// Schedules returns whether the suite has a scheduler.
func Schedules() bool {
	mutex.Lock()
	defer mutex.Unlock()
	return schedules
}

// Gates records the feature gates that differ from their defaults, and tells the processes that run.
func Gates(differing map[string]bool) {
	mutex.Lock()
	gates = differing
	changed := make([]func(), 0, len(gateChanged))
	for _, one := range gateChanged {
		changed = append(changed, one)
	}
	mutex.Unlock()
	for _, one := range changed {
		one()
	}
}

// OnGates calls a function at each change of the feature gates, until the returned function is called.
func OnGates(changed func()) func() {
	mutex.Lock()
	defer mutex.Unlock()
	listeners++
	number := listeners
	gateChanged[number] = changed
	return func() {
		mutex.Lock()
		defer mutex.Unlock()
		delete(gateChanged, number)
	}
}

// WithGates returns the Configuration with the feature gates of this moment.
func WithGates(configuration map[string]any) map[string]any {
	mutex.Lock()
	defer mutex.Unlock()
	result := map[string]any{}
	for name, value := range configuration {
		result[name] = value
	}
	result["featureGates"] = gates
	return result
}

// Configuration returns the recorded settings in the shape of Kueue's file.
func Configuration() map[string]any {
	mutex.Lock()
	defer mutex.Unlock()
	names := make([]string, 0, len(frameworks))
	for name := range frameworks {
		names = append(names, name)
	}
	if len(names) > 0 {
		set("integrations.frameworks", names)
	}
	set("apiVersion", "config.kueue.x-k8s.io/v1beta2")
	set("kind", "Configuration")
	result := settings
	settings = map[string]any{}
	return result
}

func plain(value any) any {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	var result any
	if err := json.Unmarshal(data, &result); err != nil {
		panic(err)
	}
	return result
}

// Known records a kind, and returns it.
func Known(gvk schema.GroupVersionKind) schema.GroupVersionKind {
	Kind(gvk)
	return gvk
}
