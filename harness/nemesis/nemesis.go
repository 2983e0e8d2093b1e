package nemesis

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// deletesMax is how many force deletes of one step are under way at once.
const deletesMax = 16

// Outcome says how an operation ended: OK, Fail, or Info when nobody knows or
// when it was skipped.
type Outcome struct {
	Type history.OpType
	Note string
	Err  error
}

// Skipped is the outcome of what the cluster cannot do.
func Skipped(why string) Outcome { return Outcome{Type: history.Info, Note: "skipped: " + why} }

// OK is the outcome of what was done.
func OK(note string) Outcome { return Outcome{Type: history.OK, Note: note} }

// Failed is the outcome of what surely did not happen.
func Failed(err error) Outcome { return Outcome{Type: history.Fail, Err: err} }

// Unclear is the outcome of what may have happened or not.
func Unclear(err error) Outcome { return Outcome{Type: history.Info, Err: err} }

// Nemesis injects faults into one cluster. It is safe for concurrent use.
type Nemesis struct {
	cluster clusters.Cluster
	core    kubernetes.Interface
}

// New returns the nemesis of a cluster. Pods are deleted through core.
func New(cluster clusters.Cluster, core kubernetes.Interface) *Nemesis {
	return &Nemesis{cluster: cluster, core: core}
}

// ForceDelete deletes pods with grace period 0, in the order given, spread
// apart by that much, or side by side if spread is 0. Every delete names the
// pod's UID: a pod that is gone already, or recreated, is not hit instead.
func (n *Nemesis) ForceDelete(ctx context.Context, pods []*corev1.Pod, spread time.Duration) Outcome {
	var deleted atomic.Int64
	var group errgroup.Group
	group.SetLimit(deletesMax)
	if spread > 0 {
		group.SetLimit(1)
	}
	for i, pod := range pods {
		group.Go(func() error {
			if i > 0 && !Pause(ctx, spread) {
				return ctx.Err()
			}
			err := n.forceDelete(ctx, pod)
			if err == nil {
				deleted.Add(1)
			}
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return Unclear(fmt.Errorf("force deleting: %w", err))
	}
	note := fmt.Sprintf("deleted %d of %d pods", deleted.Load(), len(pods))
	if deleted.Load() == 0 {
		return Outcome{Type: history.Fail, Note: note, Err: fmt.Errorf("no pod was left to delete")}
	}
	return OK(note)
}

func (n *Nemesis) forceDelete(ctx context.Context, pod *corev1.Pod) error {
	now := int64(0)
	return n.core.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
}

// Pause waits for a scheduled delay and tells whether it was waited out.
func Pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
