package harness

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/danm-chaos/danm-chaos/harness/check"
	"github.com/danm-chaos/danm-chaos/harness/history"
)

// agreement is what a snapshot says about convergence.
type agreement struct {
	Workload string // why the workload is not back, or nothing
	Sets     string // how pods, endpoints and bits differ, or nothing
	Runtime  string // how pods and what really runs differ, or nothing
}

// hasAll tells whether nothing is pending.
func (a agreement) hasAll() bool { return a.pending() == "" }

// pending is the reason to wait on.
func (a agreement) pending() string {
	return strings.Join(slices.DeleteFunc([]string{a.Workload, a.Sets, a.Runtime}, func(s string) bool { return s == "" }), "; ")
}

// verdict judges the snapshot alone. Pods that do not come back, or not really,
// are no proof against the cleaner; sets that differ after the budget are.
func (a agreement) verdict() check.Verdict {
	switch {
	case a.Sets != "":
		return check.Invalid
	case a.Workload != "" || a.Runtime != "":
		return check.Unknown
	default:
		return check.Valid
	}
}

// agree compares a snapshot's pods, endpoints and bits as sets. It decides
// when to stop waiting; package check judges the snapshot by itself.
func agree(s history.Snapshot, replicas int) agreement {
	var a agreement
	ready := 0
	for _, p := range s.Pods {
		if p.Ready && !p.Terminating {
			ready++
		}
	}
	if ready != replicas || len(s.Pods) != replicas {
		a.Workload = fmt.Sprintf("%d of %d pods are Ready", ready, replicas)
	}
	a.Sets = compareOwners(s)
	if a.Sets == "" && a.Workload == "" {
		// Right after an ADD began, a bit without endpoint is in order, so bits
		// tell something only once all pods are back.
		a.Sets = compareBits(s)
	}
	return a
}

// compareOwners counts the endpoints of each pod UID.
func compareOwners(s history.Snapshot) string {
	endpoints := map[string][]string{}
	for _, ep := range s.Endpoints {
		endpoints[ep.PodUID] = append(endpoints[ep.PodUID], ep.Pod)
	}
	for _, p := range s.Pods {
		// A pod whose ADD is not through has no endpoints yet.
		if got := len(endpoints[p.UID]); got != p.Interfaces && (p.Ready || got > p.Interfaces) {
			return fmt.Sprintf("pod %s has %d endpoints, not %d", p.Name, got, p.Interfaces)
		}
		delete(endpoints, p.UID)
	}
	if len(endpoints) > 0 {
		uid := slices.Min(slices.Collect(maps.Keys(endpoints)))
		return fmt.Sprintf("%d endpoints belong to no pod, such as one of %s (UID %s)", countAll(endpoints), endpoints[uid][0], uid)
	}
	return ""
}

func countAll(m map[string][]string) int {
	n := 0
	for _, list := range m {
		n += len(list)
	}
	return n
}

// compareBits matches addresses of endpoints and set bits one to one.
func compareBits(s history.Snapshot) string {
	bits := map[string]bool{}
	for _, b := range s.Bits {
		bits[b.Address] = true
	}
	holders := map[string]string{}
	for _, ep := range s.Endpoints {
		for _, addr := range ep.Addresses {
			if other, ok := holders[addr]; ok {
				return fmt.Sprintf("%s and %s both hold %s", other, ep.Pod, addr)
			}
			holders[addr] = ep.Pod
			if !bits[addr] {
				return fmt.Sprintf("%s holds %s, whose bit is not set", ep.Pod, addr)
			}
			delete(bits, addr)
		}
	}
	if len(bits) > 0 {
		return fmt.Sprintf("%d bits belong to no endpoint, such as %s", len(bits), slices.Min(slices.Collect(maps.Keys(bits))))
	}
	return ""
}
