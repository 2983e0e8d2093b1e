package chaosmesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chaos-mesh/chaos-mesh/api/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
)

// Bounds of what is waited for.
const (
	pollInterval = 200 * time.Millisecond
	// recoveryMax is how long a fault may take to be undone before its
	// finalizer is forced away, which may leave it in place.
	recoveryMax = time.Minute
	forcedMax   = 15 * time.Second
	// forceAnnotation makes Chaos Mesh drop its finalizer unrecovered.
	forceAnnotation = "chaos-mesh.chaos-mesh.org/cleanFinalizer"
	forced          = "forced"
	// Plural names of the kinds that are used.
	podChaos, networkChaos, timeChaos, stressChaos = "podchaos", "networkchaos", "timechaos", "stresschaos"
	// PodNetworks is where Chaos Mesh keeps what it does to the network of each pod.
	PodNetworks = "podnetworkchaos"
)

// Resources are the plural names of the kinds of object that faults are.
func Resources() []string { return []string{podChaos, networkChaos, timeChaos, stressChaos} }

// ErrLeftInPlace says that an object is gone, but its fault perhaps not.
var ErrLeftInPlace = errors.New("not recovered in time: the finalizer was forced away, and the fault may still be in place")

// Event is what Chaos Mesh recorded of one target.
type Event struct {
	Time      time.Time // by Chaos Mesh's clock, whole seconds
	Target    string    // "namespace/pod", or with "/container"
	Operation string    // Apply or Recover
	OK        bool
	Message   string
}

// String returns the event as a history notes it.
func (e Event) String() string {
	outcome := "succeeded"
	if !e.OK {
		outcome = "failed: " + e.Message
	}
	return fmt.Sprintf("%s %s %s at %s", e.Operation, e.Target, outcome, e.Time.UTC().Format(time.RFC3339))
}

// reasonMax bounds what is repeated of Chaos Mesh's words.
const reasonMax = 200

// LastFailure is what Chaos Mesh said last of why it failed, or nothing. Of a long
// reason the end is kept, which tells most.
func LastFailure(events []Event) string {
	reason := ""
	for _, e := range events {
		if !e.OK {
			reason = e.Message
		}
	}
	words := strings.Fields(reason)
	for len(words) > 1 && len(strings.Join(words, " ")) > reasonMax {
		words = words[1:]
	}
	return strings.Join(words, " ")
}

// Mesh injects faults through the Chaos Mesh of one cluster.
type Mesh struct {
	dynamic dynamic.Interface
	meta    metav1.ObjectMeta
	recover time.Duration // bounds of Heal
	forced  time.Duration
}

// New returns one whose objects are made like meta: in its namespace, whatever
// the victims' is, with its labels and annotations.
func New(d dynamic.Interface, meta metav1.ObjectMeta) *Mesh {
	return &Mesh{dynamic: d, meta: meta, recover: recoveryMax, forced: forcedMax}
}

// RecoveringWithin returns one that gives Chaos Mesh that long to undo a fault.
// It is for victims that nobody needs afterwards.
func (m *Mesh) RecoveringWithin(d time.Duration) *Mesh {
	hasty := *m
	hasty.recover = d
	return &hasty
}

// IsServed tells whether a cluster has Chaos Mesh's API.
func IsServed(d discovery.DiscoveryInterface) (bool, error) {
	_, err := d.ServerResourcesForGroupVersion(v1alpha1.SchemeGroupVersion.String())
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for Chaos Mesh: %w", err)
	}
	return true, nil
}

// Injected is a fault that Chaos Mesh was told of.
type Injected struct {
	mesh     *Mesh
	fault    Fault
	resource schema.GroupVersionResource
	name     string
	told     map[string]bool // events that were reported
}

// Inject creates the object and returns once Chaos Mesh says that every victim
// is hit. If it does not within ctx, the fault may have come or may yet: the
// result, which is then returned with the error, must be healed all the same.
func (m *Mesh) Inject(ctx context.Context, name string, f Fault) (*Injected, []Event, error) {
	if err := f.check(); err != nil {
		return nil, nil, fmt.Errorf("injecting %s: %w", name, err)
	}
	meta := m.meta.DeepCopy()
	meta.Name = name
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(f.object(*meta))
	if err != nil {
		return nil, nil, fmt.Errorf("encoding %s: %w", name, err)
	}
	delete(content, "status")
	in := &Injected{mesh: m, fault: f, resource: f.resource(), name: name, told: map[string]bool{}}
	if _, err := in.client().Create(ctx, &unstructured.Unstructured{Object: content}, metav1.CreateOptions{}); err != nil {
		return nil, nil, fmt.Errorf("injecting %s: %w", name, err)
	}
	events, err := in.await(ctx, v1alpha1.ConditionAllInjected)
	if err != nil {
		err = fmt.Errorf("injecting %s: %w", name, err)
	}
	return in, events, err
}

func (in *Injected) client() dynamic.ResourceInterface {
	return in.mesh.dynamic.Resource(in.resource).Namespace(in.mesh.meta.Namespace)
}

// await polls until the condition is true, and tells what was recorded until
// then. A selection of nothing counts as all injected for Chaos Mesh, but not
// for us.
func (in *Injected) await(ctx context.Context, wanted v1alpha1.ChaosConditionType) ([]Event, error) {
	var status v1alpha1.ChaosStatus
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		u, err := in.client().Get(ctx, in.name, metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if status, err = statusOf(u); err != nil {
			return false, err
		}
		return isTrue(status, wanted) && len(status.Experiment.Records) >= len(in.fault.Pods), nil
	})
	events := in.news(status)
	if err != nil {
		if said := LastFailure(events); said != "" {
			err = fmt.Errorf("%w; Chaos Mesh says: %s", err, said)
		}
		return events, fmt.Errorf("waiting for %s, %d of %d victims selected: %w", wanted, len(status.Experiment.Records), len(in.fault.Pods), err)
	}
	return events, nil
}

func statusOf(u *unstructured.Unstructured) (v1alpha1.ChaosStatus, error) {
	var status v1alpha1.ChaosStatus
	content, found, err := unstructured.NestedMap(u.Object, "status")
	if err != nil || !found {
		return status, err
	}
	err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &status)
	return status, err
}

func isTrue(s v1alpha1.ChaosStatus, wanted v1alpha1.ChaosConditionType) bool {
	return slices.ContainsFunc(s.Conditions, func(c v1alpha1.ChaosCondition) bool {
		return c.Type == wanted && c.Status == corev1.ConditionTrue
	})
}

// news returns the recorded events that were not told before, by time.
func (in *Injected) news(s v1alpha1.ChaosStatus) []Event {
	var events []Event
	for _, r := range s.Experiment.Records {
		for _, e := range r.Events {
			event := Event{
				Target: r.Id, Operation: string(e.Operation), OK: e.Type == v1alpha1.TypeSucceeded, Message: e.Message,
			}
			if e.Timestamp != nil {
				event.Time = e.Timestamp.Time
			}
			if key := event.String(); !in.told[key] {
				in.told[key] = true
				events = append(events, event)
			}
		}
	}
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(a.Time.Compare(b.Time), strings.Compare(a.Target, b.Target))
	})
	return events
}

// Heal deletes the object and returns once it is gone, which Chaos Mesh allows
// when it has undone the fault. One that it does not undo in time is forced
// away, by Chaos Mesh itself or, if that is dead, by us; then the error is
// ErrLeftInPlace.
func (in *Injected) Heal(ctx context.Context) ([]Event, error) {
	if err := in.client().Delete(ctx, in.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("healing %s: %w", in.name, err)
	}
	events, err := in.awaitGone(ctx, in.mesh.recover)
	if err == nil {
		return events, nil
	}
	if ctx.Err() != nil {
		return events, fmt.Errorf("healing %s: %w", in.name, err)
	}
	more, err := in.force(ctx)
	events = append(events, more...)
	if err = errors.Join(err, in.withdraw(ctx)); err != nil {
		return events, fmt.Errorf("forcing %s away: %w", in.name, err)
	}
	return events, fmt.Errorf("healing %s: %w", in.name, ErrLeftInPlace)
}

func (in *Injected) force(ctx context.Context) (events []Event, err error) {
	for _, patch := range [][]byte{
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, forceAnnotation, forced),
		[]byte(`{"metadata":{"finalizers":null}}`),
	} {
		_, err = in.client().Patch(ctx, in.name, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return events, nil
		}
		if err != nil {
			return events, err
		}
		var more []Event
		more, err = in.awaitGone(ctx, in.mesh.forced)
		if events = append(events, more...); err == nil {
			return events, nil
		}
	}
	return events, err
}

// withdraw takes a fault of networks out of what Chaos Mesh keeps for each pod,
// which outlives an object that was forced away: it would do it yet, whenever it
// can. What others do to the pod stays.
func (in *Injected) withdraw(ctx context.Context) error {
	if in.resource.Resource != networkChaos {
		return nil
	}
	var errs []error
	source := in.mesh.meta.Namespace + "/" + in.name
	pods := in.mesh.dynamic.Resource(v1alpha1.SchemeGroupVersion.WithResource(PodNetworks)).Namespace(in.fault.Namespace)
	for _, pod := range in.fault.Pods {
		u, err := pods.Get(ctx, pod, metav1.GetOptions{})
		if err == nil && without(u, source) {
			_, err = pods.Update(ctx, u, metav1.UpdateOptions{})
		}
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("withdrawing %s from pod %s: %w", in.name, pod, err))
		}
	}
	return errors.Join(errs...)
}

// without removes what a source wants of a pod's network, and tells whether there
// was anything.
func without(u *unstructured.Unstructured, source string) (changed bool) {
	spec, _, _ := unstructured.NestedMap(u.Object, "spec") // what is of another shape is not ours
	for field, value := range spec {
		list, isList := value.([]any)
		if !isList {
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(list), func(entry any) bool {
			rule, _ := entry.(map[string]any)
			return rule["source"] == source
		})
		changed = changed || len(kept) < len(list)
		spec[field] = kept
	}
	if changed {
		u.Object["spec"] = spec
	}
	return changed
}

// Remove deletes every object of Chaos Mesh that bears the labels, as Heal does
// with one, for whoever cleans up after a run that is dead.
func Remove(ctx context.Context, d dynamic.Interface, selector string) (removed []string, err error) {
	for _, plural := range Resources() {
		resource := v1alpha1.SchemeGroupVersion.WithResource(plural)
		list, err := d.Resource(resource).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return removed, fmt.Errorf("listing %s: %w", plural, err)
		}
		for i := range list.Items {
			u := &list.Items[i]
			m := New(d, metav1.ObjectMeta{Namespace: u.GetNamespace()})
			in := &Injected{mesh: m, fault: victimsOf(u), resource: resource, name: u.GetName(), told: map[string]bool{}}
			if _, err := in.Heal(ctx); err != nil && !errors.Is(err, ErrLeftInPlace) {
				return removed, err
			} else if err != nil {
				removed = append(removed, plural+" "+in.name+", unrecovered")
				continue
			}
			removed = append(removed, plural+" "+in.name)
		}
	}
	return removed, nil
}

// victimsOf reads from an object of ours whom it names.
func victimsOf(u *unstructured.Unstructured) Fault {
	var f Fault
	byNamespace, _, _ := unstructured.NestedMap(u.Object, "spec", "selector", "pods") // nothing, if it is not of our making
	for namespace := range byNamespace {
		f.Namespace = namespace // there is one
		f.Pods, _, _ = unstructured.NestedStringSlice(byNamespace, namespace)
	}
	return f
}

// awaitGone also tells what was recorded while the object was on its way out.
func (in *Injected) awaitGone(ctx context.Context, timeout time.Duration) (events []Event, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("%s is not gone after %s", in.name, timeout))
	defer cancel()
	err = poll(ctx, func(ctx context.Context) (bool, error) {
		u, err := in.client().Get(ctx, in.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		status, err := statusOf(u)
		events = append(events, in.news(status)...)
		return false, err
	})
	return events, err
}

// poll waits until the condition holds, it fails, or ctx ends.
func poll(ctx context.Context, condition func(context.Context) (bool, error)) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		ok, err := condition(ctx)
		switch {
		case ok:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
}
