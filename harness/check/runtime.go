package check

import (
	"fmt"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// judgeRuntime holds what really runs against what the API says. A pod that
// only the API takes for running was not put to the test, and one that nobody
// but its node knows still uses its address.
func (s *settlement) judgeRuntime() {
	if s.Runtime == nil {
		return
	}
	running := map[string]int{}
	for i := range s.Runtime.Sandboxes {
		sb := &s.Runtime.Sandboxes[i]
		s.count(Convergence)
		running[sb.PodUID]++
		l := s.lifeOf(sb.ID)
		switch p := s.pods[sb.PodUID]; {
		case p == nil:
			s.tellGhost(sb, l)
		case l == nil && p.Interfaces > 0:
			s.unknownf(HistoryComplete, "sandbox %s of %s (uid %s) runs on %s, but no CNI ADD of it is recorded", sb.ID, sb.Pod, sb.PodUID, sb.Node)
		}
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		if got := running[p.UID]; got != 1 && p.Ready {
			s.pending = append(s.pending, fmt.Sprintf("pod %s (uid %s) is Ready, but %d sandboxes of it run", p.Name, p.UID, got))
		}
	}
}

func (j *judge) lifeOf(sandbox string) *life {
	for _, l := range j.lives {
		if l.ID == sandbox {
			return l
		}
	}
	return nil
}

// tellGhost files a sandbox whose pod is gone. Kubernetes' contract lets the
// cleaner release its address, so it is a finding; it is told once.
func (s *settlement) tellGhost(sb *history.SnapshotSandbox, l *life) {
	if s.ghosts[sb.ID] {
		return
	}
	s.ghosts[sb.ID] = true
	v := Violation{
		Invariant: SingleHolder, Blame: BlameOther, Pod: s.lane.Namespace + "/" + sb.Pod, PodUID: sb.PodUID,
		Lane: s.lane.Name, Network: s.network.String(), Record: s.record,
		Message: fmt.Sprintf("%s (uid %s) runs on %s although its pod is gone", sb.Pod, sb.PodUID, sb.Node),
	}
	if l != nil {
		v.Message += s.sharedBy(l)
	}
	v = s.at(v, s.time)
	v.Iteration = s.Iteration
	s.accuse(v)
}

// sharedBy says who else has an address of the attachment by now.
func (s *settlement) sharedBy(l *life) string {
	text := ""
	for i := range l.Interfaces {
		for _, a := range l.Interfaces[i].Addresses {
			addr, ok, err := danm.ParseAddress(a)
			if err != nil || !ok {
				continue // checkInterface reports it
			}
			for _, holder := range s.holders[addr] {
				if holder.PodUID != l.PodUID {
					text += fmt.Sprintf(", on %s, which %s (uid %s) has now", addr, holder.Pod, holder.PodUID)
				}
			}
		}
	}
	return text
}
