package canary

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scanPeriod is the pace of a cleaner that releases what two scans in a row
// found without owner.
const scanPeriod = 20*time.Second + 1_003*time.Microsecond

// runScans looks for pods by their names, twice before it acts. An endpoint
// whose pod was made anew under its old name keeps its address for ever.
func runScans(ctx context.Context, c clients) error {
	marked := map[string]bool{}
	for {
		found, err := c.scan(ctx, marked)
		if err != nil {
			c.log.Error(err, "scan failed")
		} else {
			marked = found
		}
		if err := waitFor(ctx, scanPeriod); err != nil {
			return err
		}
	}
}

// scan releases what was marked before and is still without pod, and returns
// what is to be marked.
func (c clients) scan(ctx context.Context, marked map[string]bool) (map[string]bool, error) {
	eps, err := c.listEndpoints(ctx, metav1.NamespaceAll)
	if err != nil {
		return nil, err
	}
	pods, err := c.core.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	names := map[string]bool{}
	for i := range pods.Items {
		names[pods.Items[i].Namespace+"/"+pods.Items[i].Name] = true
	}
	found := map[string]bool{}
	for _, ep := range eps {
		switch key := ep.Namespace + "/" + ep.Name; {
		case names[ep.Namespace+"/"+ep.Spec.Pod]:
		case !marked[key]:
			found[key] = true
		default:
			if err := c.releaseCarefully(ctx, ep); err != nil {
				return nil, err
			}
		}
	}
	return found, nil
}

// ignoreChanged drops the errors that say that somebody else was quicker.
func ignoreChanged(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
