package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/existing"
)

// Fleet is a Job under way.
type Fleet struct {
	options   Options
	core      kubernetes.Interface
	namespace string
	job       string
	shards    []string // of the Job, by index
	journal   string
}

// Open starts the Job, or finds the one that an earlier program of this run left
// under way. Before that, everything that expired fleets left is removed. What
// it cannot use it refuses, and then nothing was changed.
func Open(ctx context.Context, o Options, now time.Time) (*Fleet, error) {
	o = o.withDefaults()
	p, err := Examine(ctx, o)
	if err != nil {
		return nil, err
	}
	f := &Fleet{options: o, core: p.reached.Core, namespace: namespaceName(o.RunID)}
	expires := now.Add(o.Lifetime)
	if f.journal, err = openJournal(o, p.reached.Config.Host, expires); err != nil {
		return nil, err
	}
	if err := removeExpired(ctx, f.core, now, o.Progress); err != nil {
		return nil, errors.Join(fmt.Errorf("removing what expired fleets left: %w", err), controlplane.RemoveJournal(f.journal))
	}
	err = f.begin(ctx, expires)
	switch {
	case err == nil:
		return f, nil
	case o.Resume:
		return nil, err // what is there may hold results, and can be resumed again
	}
	// Half a fleet is removed like a whole one.
	return nil, errors.Join(err, f.Close(context.WithoutCancel(ctx)))
}

// begin makes what is not there yet.
func (f *Fleet) begin(ctx context.Context, expires time.Time) error {
	id := f.options.RunID
	_, err := f.core.CoreV1().Namespaces().Create(ctx, namespaceOf(id, expires), metav1.CreateOptions{})
	if err := f.accept(err); err != nil {
		return fmt.Errorf("creating namespace %s: %w", f.namespace, err)
	}
	account, role, binding := accountOf(id, expires)
	_, errAccount := f.core.CoreV1().ServiceAccounts(f.namespace).Create(ctx, account, metav1.CreateOptions{})
	_, errRole := f.core.RbacV1().Roles(f.namespace).Create(ctx, role, metav1.CreateOptions{})
	_, errBinding := f.core.RbacV1().RoleBindings(f.namespace).Create(ctx, binding, metav1.CreateOptions{})
	if err := errors.Join(f.accept(errAccount), f.accept(errRole), f.accept(errBinding)); err != nil {
		return fmt.Errorf("giving pods the right to store results: %w", err)
	}
	return f.beginJob(ctx, expires)
}

// accept takes what an earlier program of the run made for ours.
func (f *Fleet) accept(err error) error {
	if f.options.Resume && apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// beginJob finds a Job that still goes, or makes one for the shards of ours that
// no earlier Job finished.
func (f *Fleet) beginJob(ctx context.Context, expires time.Time) error {
	jobs, err := f.core.BatchV1().Jobs(f.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("looking for Jobs: %w", err)
	}
	for i := range jobs.Items {
		if job := &jobs.Items[i]; !hasEnded(job) {
			f.job, f.shards = job.Name, strings.Split(job.Annotations[shardsAnnotation], ",")
			fmt.Fprintf(f.options.Progress, "Job %s/%s still goes\n", f.namespace, f.job)
			return nil
		}
	}
	rest := f.options
	if rest.Shards, err = f.unstored(ctx); err != nil || len(rest.Shards) == 0 {
		return err
	}
	job := jobOf(rest, fmt.Sprintf("shards-%d", len(jobs.Items)+1), expires)
	if _, err := f.core.BatchV1().Jobs(f.namespace).Create(ctx, job, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the Job: %w", err)
	}
	f.job, f.shards = job.Name, rest.Shards
	return nil
}

// unstored returns the shards without a result, in their order.
func (f *Fleet) unstored(ctx context.Context) ([]string, error) {
	if !f.options.Resume {
		return f.options.Shards, nil
	}
	var left []string
	for _, shard := range f.options.Shards {
		_, ok, err := f.result(ctx, shard)
		if err != nil {
			return nil, err
		}
		if !ok {
			left = append(left, shard)
		}
	}
	return left, nil
}

// result returns what a shard stored, if it did.
func (f *Fleet) result(ctx context.Context, shard string) ([]byte, bool, error) {
	m, err := f.core.CoreV1().ConfigMaps(f.namespace).Get(ctx, resultName(shard), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading the result of shard %s: %w", shard, err)
	}
	return m.BinaryData[resultKey], true, nil
}

func hasEnded(job *batchv1.Job) bool { return ending(job) != nil }

// ending is the condition that ended a Job, nil while it goes.
func ending(job *batchv1.Job) *batchv1.JobCondition {
	for i := range job.Status.Conditions {
		c := &job.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// Close removes the fleet from the cluster and returns when it is gone.
func (f *Fleet) Close(ctx context.Context) error {
	if err := removeRun(ctx, f.core, f.options.RunID, io.Discard); err != nil {
		return fmt.Errorf("removing the fleet: %w", err)
	}
	return controlplane.RemoveJournal(f.journal)
}

// removeRun deletes the namespaces of a run's fleet.
func removeRun(ctx context.Context, core kubernetes.Interface, runID string, out io.Writer) error {
	list, err := core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{
		LabelSelector: clusters.FleetLabel + "," + clusters.RunLabel + "=" + clusters.RunLabelValue(runID),
	})
	if err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	var errs []error
	for i := range list.Items {
		errs = append(errs, remove(ctx, core, &list.Items[i], out))
	}
	return errors.Join(errs...)
}

// remove deletes the Jobs first. A namespace that is deleted waits for its pods
// before it deletes anything else, and a Job does not let go of a failed pod
// until it has made the next, which it cannot there: both would wait for ever.
func remove(ctx context.Context, core kubernetes.Interface, ns *corev1.Namespace, out io.Writer) error {
	jobs, err := core.BatchV1().Jobs(ns.Name).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Jobs of %s: %w", ns.Name, err)
	}
	for i := range jobs.Items {
		err := core.BatchV1().Jobs(ns.Name).Delete(ctx, jobs.Items[i].Name, metav1.DeleteOptions{
			PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &jobs.Items[i].UID},
		})
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			return fmt.Errorf("deleting Job %s/%s: %w", ns.Name, jobs.Items[i].Name, err)
		}
	}
	// By force, because pods on a lost node do not end, and ours hold nothing
	// that somebody else could be given too early.
	err = core.CoreV1().Pods(ns.Name).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: ptr.To(int64(0))}, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("deleting pods of %s: %w", ns.Name, err)
	}
	if err := existing.DeleteNamespace(ctx, core, ns); err != nil {
		return err
	}
	fmt.Fprintf(out, "namespace %s removed, with the Job and the pods in it\n", ns.Name)
	return nil
}

// removeExpired removes what fleets left whose time is over, whoever ran them.
func removeExpired(ctx context.Context, core kubernetes.Interface, now time.Time, out io.Writer) error {
	list, err := core.CoreV1().Namespaces().List(ctx, metav1.ListOptions{LabelSelector: clusters.FleetLabel})
	if err != nil {
		return fmt.Errorf("listing namespaces: %w", err)
	}
	var errs []error
	for i := range list.Items {
		ns := &list.Items[i]
		expires, err := time.Parse(time.RFC3339, ns.Annotations[clusters.ExpiresAnnotation])
		if err != nil || now.Before(expires) {
			continue // one that does not say when is somebody's own affair
		}
		errs = append(errs, remove(ctx, core, ns, out))
	}
	return errors.Join(errs...)
}

// runsFolder is where the journals are; those of other kinds of runs are of
// another format and elsewhere.
func runsFolder() (string, error) {
	cache, err := controlplane.CacheFolder()
	return filepath.Join(cache, "fleet-runs"), err
}

// openJournal must be called before anything in the cluster is made.
func openJournal(o Options, server string, expires time.Time) (path string, err error) {
	folder, err := runsFolder()
	if err != nil {
		return "", err
	}
	owner, err := controlplane.ThisProcess()
	if err != nil {
		return "", err
	}
	kubeconfig, err := filepath.Abs(o.Kubeconfig)
	if err != nil {
		return "", fmt.Errorf("finding the kubeconfig: %w", err)
	}
	if o.Resume {
		if err := inherit(filepath.Join(folder, o.RunID+".json")); err != nil {
			return "", err
		}
	}
	return controlplane.WriteJournal(folder, o.RunID, journalData{
		Version: journalVersion, RunID: o.RunID, Owner: owner, Kubeconfig: kubeconfig, Context: o.Context, Server: server, Expires: expires,
	})
}
