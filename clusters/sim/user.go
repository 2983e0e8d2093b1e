package sim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/harness/history"
	"github.com/danm-chaos/danm-chaos/harness/schedule"
)

// user takes the steps of a schedule one after the other. It waits for what a
// step needs, and otherwise acts whenever the gate lets it.
type user struct {
	steps    []schedule.Step
	next     int
	ready    time.Time // when the next step may be taken; zero until it is looked at
	patience time.Time // when it is given up
	failed   *node     // the node that was failed last
	victims  []string  // names of the pods that were force deleted last, with their UIDs
}

func (u *user) isDone() bool { return u.next >= len(u.steps) }

// isImpatient tells whether a step will be given up within the time.
func (u *user) isImpatient(left time.Duration) bool {
	return !u.isDone() && !u.ready.IsZero() && time.Until(u.patience) < left
}

// userSteps passes the waits that are over and offers the next step.
func (w *world) userSteps(offer offer) {
	u := w.user
	for !u.isDone() {
		step := u.steps[u.next]
		if u.ready.IsZero() {
			u.ready = time.Now().Add(step.Delay)
			u.patience = u.ready.Add(w.settleTime())
		}
		isLate := !time.Now().Before(u.patience)
		switch {
		case time.Now().Before(u.ready), !w.canTake(step) && !isLate:
			return
		case isLate && !w.canTake(step):
			w.gaveUp(step)
			continue
		case isWait(step.Do):
			w.took(step, "")
			continue
		}
		offer("user", string(step.Do), "", func() { w.takeStep(step) })
		return
	}
}

// lastForceDeletes offers to force delete what hangs on dead nodes when the steps are
// over. Nobody else would, and a pod that hangs says nothing about a cleaner.
func (w *world) lastForceDeletes(offer offer) {
	for _, pod := range w.sortedPods() {
		if n := w.nodeOf(pod); pod.DeletionTimestamp != nil && n != nil && !n.hasPower {
			offer("user", "force-delete", pod.Name, func() { w.deletePod(clusters.UserHarness, pod, new(int64)) })
		}
	}
}

// isWait tells whether a step only waits.
func isWait(verb schedule.Verb) bool {
	switch verb {
	case schedule.AwaitReady, schedule.AwaitNodeReady, schedule.AwaitTerminating, schedule.Settle:
		return true
	}
	return false
}

// canTake tells whether what the step waits for or needs is there.
func (w *world) canTake(step schedule.Step) bool {
	switch step.Do {
	case schedule.AwaitReady:
		return w.countRunning() == w.podsWanted() && len(w.pods) == w.podsWanted()
	case schedule.AwaitNodeReady:
		return w.areNodesReady()
	case schedule.AwaitTerminating:
		return w.isTerminating(w.user.failed)
	case schedule.Settle:
		return w.isSettled()
	case schedule.FailNode:
		return len(w.nodesWithPods(step.Target)) > 0
	case schedule.ForceDelete:
		return step.Target != schedule.SamePods || w.areVictimsBack()
	}
	return true
}

func (w *world) countRunning() int {
	n := 0
	for _, pod := range w.pods {
		if isRunning(pod) {
			n++
		}
	}
	return n
}

func (w *world) areNodesReady() bool {
	for _, n := range w.nodes {
		if n.hasPower && !n.isGone && !n.isReady {
			return false
		}
	}
	return true
}

// isTerminating tells whether every pod of the node is marked for deletion.
func (w *world) isTerminating(n *node) bool {
	for _, pod := range w.pods {
		if n != nil && pod.Spec.NodeName == n.name && pod.DeletionTimestamp == nil && !w.isMirror(pod) {
			return false
		}
	}
	return true
}

func (w *world) areVictimsBack() bool {
	for _, victim := range w.user.victims {
		name, uid, _ := strings.Cut(victim, "/")
		if pod, ok := w.pods[name]; w.isWanted(name) && (!ok || string(pod.UID) == uid) {
			return false
		}
	}
	return true
}

// isWanted tells whether the StatefulSet has such a pod, after scaling too.
func (w *world) isWanted(name string) bool {
	return slices.Contains(w.podNames[:w.replicasWanted], name)
}

// nodesWithPods returns the running nodes that a step may mean.
func (w *world) nodesWithPods(target schedule.Target) []*node {
	most := 0
	for _, n := range w.nodes {
		most = max(most, w.load(n))
	}
	var candidates []*node
	for _, n := range w.nodes {
		load := w.load(n)
		if !n.hasPower || n.isGone || load == 0 || target == schedule.BusiestNode && load < most {
			continue
		}
		candidates = append(candidates, n)
	}
	return candidates
}

// took records that the step was taken.
func (w *world) took(step schedule.Step, target string) {
	w.recordStep(history.Op{Target: target, Fault: step.Fault, F: string(step.Do), Type: history.OK})
}

// gaveUp records that what the step waits for did not come. What that means is
// for the checkers; the user goes on.
func (w *world) gaveUp(step schedule.Step) {
	w.recordStep(history.Op{Fault: step.Fault, F: string(step.Do), Type: history.Fail, Error: "it took too long"})
}

// recordStep records a step as begun and ended, and turns to the next.
func (w *world) recordStep(end history.Op) {
	u := w.user
	end.Process, end.Lane, end.Iteration, end.Step = namespaceName, namespaceName, 1, u.next
	begin := end
	begin.Type, begin.Error = history.Invoke, ""
	w.record.add(history.Record{Op: &begin})
	w.record.add(history.Record{Op: &end})
	u.next, u.ready = u.next+1, time.Time{}
}

func (w *world) takeStep(step schedule.Step) {
	u := w.user
	switch step.Do {
	case schedule.FailNode:
		candidates := w.nodesWithPods(step.Target)
		u.failed = candidates[step.Pick%uint64(len(candidates))]
		w.took(step, u.failed.name)
		w.powerOff(u.failed)
	case schedule.RestoreNode:
		w.took(step, u.failed.name)
		w.powerOn(u.failed)
	case schedule.ReplaceNode:
		w.took(step, u.failed.name)
		w.removeNode(u.failed)
		w.addNode(fmt.Sprintf("node-%d", len(w.nodes)))
	case schedule.ForceDelete:
		w.forceDelete(step)
	default:
		w.fail(fmt.Errorf("the simulator has no step %q", step.Do))
	}
}

// removeNode deletes a node for good. Its pods are left to the pod collector.
func (w *world) removeNode(n *node) {
	n.isGone = true
	if w.static("static-"+n.name) == nil && w.plan.World.StaticPods > 0 {
		l := w.lane()
		l.Replicas = w.podsWanted()
		w.record.add(history.Record{Lane: l})
	}
	w.do(clusters.UserHarness, http.MethodDelete, "/api/v1/nodes/"+n.name, nil)
	kept := w.sandboxes[:0]
	for _, sb := range w.sandboxes {
		if sb.node != n {
			kept = append(kept, sb)
		}
	}
	w.sandboxes = kept
}

// forceDelete deletes pods with grace period 0, all at once: between two of
// them nothing can happen that could not happen after both or before.
func (w *world) forceDelete(step schedule.Step) {
	var pods []*corev1.Pod
	for _, pod := range w.sortedPods() {
		if w.isMeant(step, pod) && !w.isMirror(pod) {
			pods = append(pods, pod)
		}
	}
	order := rand.New(rand.NewPCG(step.Pick, 0))
	order.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	if step.Count > 0 {
		pods = pods[:min(step.Count, len(pods))]
	}
	target := ""
	if len(pods) > 0 {
		target = pods[0].Namespace + "/" + pods[0].Name
	}
	w.took(step, target)
	w.user.victims = nil
	for _, pod := range pods {
		w.user.victims = append(w.user.victims, pod.Name+"/"+string(pod.UID))
		w.deletePod(clusters.UserHarness, pod, new(int64))
	}
}

func (w *world) isMeant(step schedule.Step, pod *corev1.Pod) bool {
	switch step.Target {
	case schedule.FailedNode:
		return w.user.failed != nil && pod.Spec.NodeName == w.user.failed.name
	case schedule.SamePods:
		for _, victim := range w.user.victims {
			if name, _, _ := strings.Cut(victim, "/"); name == pod.Name {
				return true
			}
		}
		return false
	}
	return true
}
