package harness

import (
	"context"
	"fmt"

	"golang.org/x/sync/errgroup"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// askRuntimes adds to a snapshot what the nodes' container runtimes say is
// running, where the cluster can ask them. The API may know less: a pod of a
// node that was cut off runs on after it was force-deleted.
func (l *lane) askRuntimes(ctx context.Context, s *history.Snapshot) error {
	lister, ok := l.run.config.Cluster.(clusters.SandboxLister)
	if !ok {
		return nil
	}
	nodes := l.answering()
	found := make([][]clusters.Sandbox, len(nodes))
	group, ctx := errgroup.WithContext(ctx)
	for i, node := range nodes {
		group.Go(func() (err error) {
			found[i], err = lister.Sandboxes(ctx, node)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	s.Runtime = &history.SnapshotRuntime{}
	for i, node := range nodes {
		for _, sb := range found[i] {
			if sb.Namespace == l.built.Namespace {
				s.Runtime.Sandboxes = append(s.Runtime.Sandboxes, history.SnapshotSandbox{ID: sb.ID, Node: node, Pod: sb.Pod, PodUID: sb.PodUID})
			}
		}
	}
	return nil
}

// answering are the nodes whose runtimes can be asked: those that are cut off
// can, as it is not the API that is asked.
func (l *lane) answering() []string {
	nodes := l.built.RunningNodes()
	if l.isDown() && (l.outage == schedule.CutOff || l.outage == schedule.NoKubelet) {
		nodes = append(nodes, l.failed)
	}
	return nodes
}

// compareRuntime matches pods and sandboxes one to one. What runs on a node that
// is still silent is not waited for: only its kubelet could end it.
func compareRuntime(s history.Snapshot, silent string) string {
	if s.Runtime == nil {
		return ""
	}
	running := map[string]int{}
	for _, sb := range s.Runtime.Sandboxes {
		running[sb.PodUID]++
	}
	for _, p := range s.Pods {
		if got := running[p.UID]; got != 1 {
			return fmt.Sprintf("%d sandboxes of pod %s run", got, p.Name)
		}
		delete(running, p.UID)
	}
	for _, sb := range s.Runtime.Sandboxes {
		if running[sb.PodUID] > 0 && sb.Node != silent {
			return fmt.Sprintf("%s (UID %s) runs on %s although its pod is gone", sb.Pod, sb.PodUID, sb.Node)
		}
	}
	return ""
}
