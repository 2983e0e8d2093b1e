package ownership

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

var (
	now    = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	policy = Policy{Quarantine: time.Minute, CompletedAllowance: 2 * time.Minute, Fencing: Contract}
	strict = Policy{Quarantine: time.Minute, CompletedAllowance: 2 * time.Minute, Fencing: Strict}

	ready        = Node{Lookup: Found, Ready: true}
	silent       = Node{Lookup: Found}
	outOfService = Node{Lookup: Found, OutOfService: true}
	deleted      = Node{Lookup: NotFound}
	unknownNode  = Node{}
)

func running(uid types.UID) Pod {
	return Pod{Lookup: Found, UID: uid, Created: now.Add(-time.Hour)}
}

func completed(uid types.UID, ago time.Duration) Pod {
	return Pod{Lookup: Found, UID: uid, Created: now.Add(-time.Hour), Completed: true, Finished: now.Add(-ago)}
}

func mirror(uid types.UID, hash string) Pod {
	p := running(uid)
	p.MirrorHash = hash
	return p
}

// owned is an endpoint of uid that has been a suspect for ago; zero means it
// is none yet.
func owned(uid types.UID, ago time.Duration, pod Pod, node Node) Evidence {
	e := Evidence{Endpoint: Endpoint{OwnerUID: uid, Created: now.Add(-30 * time.Minute)}, Pod: pod, Node: node}
	if ago > 0 {
		e.SuspectSince = now.Add(-ago)
	}
	return e
}

func withHash(e Evidence, hash string) Evidence {
	e.Endpoint.MirrorHash = hash
	return e
}

func withPodCreated(e Evidence, sinceEndpoint time.Duration) Evidence {
	e.Pod.Created = e.Endpoint.Created.Add(sinceEndpoint)
	return e
}

func awaited(e Evidence) Evidence {
	e.Awaited = true
	return e
}

func TestDecide(t *testing.T) {
	gone := Pod{Lookup: NotFound}
	for _, tt := range []struct {
		name     string
		evidence Evidence
		policy   Policy
		want     Decision
	}{
		{"same UID, running: keep",
			owned("1", 0, running("1"), ready), policy, Decision{Action: Keep, Reason: OwnerAlive}},
		{"same UID, Pending after Running as after a reboot, suspected before: keep",
			owned("1", time.Hour, running("1"), ready), policy, Decision{Action: Keep, Reason: OwnerAlive}},
		{"same UID on a silent node, strict: keep",
			owned("1", time.Hour, running("1"), silent), strict, Decision{Action: Keep, Reason: OwnerAlive}},

		{"the read failed: wait, however long suspected",
			owned("1", time.Hour, Pod{}, ready), policy, Decision{Action: Wait, Reason: PodUnknown}},
		{"the read failed and the endpoint names no owner: wait",
			owned("", time.Hour, Pod{}, ready), policy, Decision{Action: Wait, Reason: PodUnknown}},

		{"no pod, first seen so: quarantine begins",
			owned("1", 0, gone, ready), policy, Decision{Action: Wait, Reason: Quarantined, Suspect: true, After: time.Minute}},
		{"no pod, in quarantine: wait for the rest of it",
			owned("1", 20*time.Second, gone, ready), policy, Decision{Action: Wait, Reason: Quarantined, Suspect: true, After: 40 * time.Second}},
		{"no pod, one nanosecond before the end of quarantine: wait",
			owned("1", time.Minute-1, gone, ready), policy, Decision{Action: Wait, Reason: Quarantined, Suspect: true, After: 1}},
		{"no pod, quarantine over: release",
			owned("1", time.Minute, gone, ready), policy, Decision{Action: Release, Reason: PodGone, Suspect: true}},

		{"the reported race, same name and new UID, first seen so: quarantine begins",
			owned("1", 0, running("2"), ready), policy, Decision{Action: Wait, Reason: Quarantined, Suspect: true, After: time.Minute}},
		{"same name and new UID, quarantine over: release the old one",
			owned("1", time.Hour, running("2"), ready), policy, Decision{Action: Release, Reason: PodReplaced, Suspect: true}},
		{"the reported race seen from the new pod's endpoint: keep",
			owned("2", time.Hour, running("2"), ready), policy, Decision{Action: Keep, Reason: OwnerAlive}},
		{"new UID, already completed: the old one is released all the same",
			owned("1", time.Hour, completed("2", 0), ready), policy, Decision{Action: Release, Reason: PodReplaced, Suspect: true}},

		{"the successor waits for the static address, silent node: release at once",
			awaited(owned("1", 0, running("2"), silent)), policy, Decision{Action: Release, Reason: PodReplaced, Suspect: true}},
		{"the successor waits for the static address, deleted node: release at once",
			awaited(owned("1", 0, running("2"), deleted)), policy, Decision{Action: Release, Reason: PodReplaced, Suspect: true}},
		{"the successor waits, but its node may clean up by itself: quarantine",
			awaited(owned("1", 0, running("2"), ready)), policy, Decision{Action: Wait, Reason: Quarantined, Suspect: true, After: time.Minute}},
		{"the successor waits, and nobody knows which node it was: quarantine",
			awaited(owned("1", 0, running("2"), unknownNode)), policy, Decision{Action: Wait, Reason: Quarantined, Suspect: true, After: time.Minute}},
		{"the successor waits, strict: the silent node is not fenced, hold",
			awaited(owned("1", 0, running("2"), silent)), strict, Decision{Action: Wait, Reason: NodeNotFenced}},
		{"the successor waits, strict, fenced node: release at once",
			awaited(owned("1", 0, running("2"), outOfService)), strict, Decision{Action: Release, Reason: PodReplaced, Suspect: true}},
		{"nobody waits for an endpoint whose pod could not be read: wait",
			awaited(owned("1", 0, Pod{}, deleted)), policy, Decision{Action: Wait, Reason: PodUnknown}},
		{"nobody waits for an endpoint whose owner lives: keep",
			awaited(owned("1", 0, running("1"), deleted)), policy, Decision{Action: Keep, Reason: OwnerAlive}},
		{"completed just now: CNI DEL may still come",
			owned("1", time.Hour, completed("1", 0), ready), policy, Decision{Action: Wait, Reason: CompletedAllowance, After: 2 * time.Minute}},
		{"completed at an unknown time: counts as just now",
			owned("1", time.Hour, Pod{Lookup: Found, UID: "1", Completed: true}, ready), policy, Decision{Action: Wait, Reason: CompletedAllowance, After: 2 * time.Minute}},
		{"completed, allowance over, node ready: quarantine begins",
			owned("1", 0, completed("1", time.Hour), ready), policy, Decision{Action: Wait, Reason: Quarantined, Suspect: true, After: time.Minute}},
		{"completed, allowance and quarantine over, node ready: release",
			owned("1", time.Hour, completed("1", time.Hour), ready), policy, Decision{Action: Release, Reason: PodCompleted, Suspect: true}},
		{"completed on a silent node: hold, with the contract too, since containers may run on",
			owned("1", time.Hour, completed("1", time.Hour), silent), policy, Decision{Action: Wait, Reason: NodeNotFenced}},
		{"completed on a node of which nothing is known: hold",
			owned("1", time.Hour, completed("1", time.Hour), unknownNode), policy, Decision{Action: Wait, Reason: NodeNotFenced}},
		{"completed on a deleted node: release",
			owned("1", time.Hour, completed("1", time.Hour), deleted), policy, Decision{Action: Release, Reason: PodCompleted, Suspect: true}},
		{"completed on a fenced node: release",
			owned("1", time.Hour, completed("1", time.Hour), outOfService), policy, Decision{Action: Release, Reason: PodCompleted, Suspect: true}},

		{"contract: no pod on a silent node: release",
			owned("1", time.Hour, gone, silent), policy, Decision{Action: Release, Reason: PodGone, Suspect: true}},
		{"strict: no pod on a silent node: hold",
			owned("1", time.Hour, gone, silent), strict, Decision{Action: Wait, Reason: NodeNotFenced}},
		{"strict: replaced on a silent node: hold",
			owned("1", time.Hour, running("2"), silent), strict, Decision{Action: Wait, Reason: NodeNotFenced}},
		{"strict: no pod and an unknown node: hold",
			owned("1", time.Hour, gone, unknownNode), strict, Decision{Action: Wait, Reason: NodeNotFenced}},
		{"strict: no pod on a ready node: release",
			owned("1", time.Hour, gone, ready), strict, Decision{Action: Release, Reason: PodGone, Suspect: true}},
		{"strict: no pod on a deleted node: release",
			owned("1", time.Hour, gone, deleted), strict, Decision{Action: Release, Reason: PodGone, Suspect: true}},
		{"strict: no pod on a fenced node: release",
			owned("1", time.Hour, gone, outOfService), strict, Decision{Action: Release, Reason: PodGone, Suspect: true}},

		{"mirror pod under a new UID, same hash: keep",
			withHash(owned("1", time.Hour, mirror("2", "h"), ready), "h"), policy, Decision{Action: Keep, Reason: MirrorAlive}},
		{"mirror pod under a new UID, owner's hash never seen: keep",
			owned("1", time.Hour, mirror("2", "h"), ready), policy, Decision{Action: Keep, Reason: MirrorAlive}},
		{"mirror pod under a new UID, other hash: release",
			withHash(owned("1", time.Hour, mirror("2", "new"), ready), "old"), policy, Decision{Action: Release, Reason: PodReplaced, Suspect: true}},
		{"mirror pod with its own UID and another hash: keep",
			withHash(owned("1", time.Hour, mirror("1", "new"), ready), "old"), policy, Decision{Action: Keep, Reason: OwnerAlive}},

		{"no PodUID, pod older than the endpoint: keep",
			withPodCreated(owned("", time.Hour, running("1"), ready), -time.Hour), policy, Decision{Action: Keep, Reason: LegacyOwnerAlive}},
		{"no PodUID, pod of the same second: keep",
			withPodCreated(owned("", time.Hour, running("1"), ready), time.Second), policy, Decision{Action: Keep, Reason: LegacyOwnerAlive}},
		{"no PodUID, pod surely younger: release",
			withPodCreated(owned("", time.Hour, running("1"), ready), 2*time.Second), policy, Decision{Action: Release, Reason: PodReplaced, Suspect: true}},
		{"no PodUID, no pod: release",
			owned("", time.Hour, gone, ready), policy, Decision{Action: Release, Reason: PodGone, Suspect: true}},
		{"no PodUID, completed pod older than the endpoint: its node decides",
			withPodCreated(owned("", time.Hour, completed("1", time.Hour), silent), -time.Hour), policy, Decision{Action: Wait, Reason: NodeNotFenced}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Decide(tt.evidence, tt.policy, now); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}

// TestUnknownNeverReleases goes through every combination of what can be known
// and demands that a release needs a pod that was surely looked up, and a
// quarantine that is surely over.
func TestUnknownNeverReleases(t *testing.T) {
	releases, early := 0, 0
	everything(func(e Evidence, p Policy) {
		d := Decide(e, p, now)
		if d.Action != Release {
			return
		}
		releases++
		isQuarantined := e.SuspectSince.IsZero() || now.Sub(e.SuspectSince) < p.Quarantine
		if isQuarantined {
			early++
		}
		switch {
		case e.Pod.Lookup == Unknown:
			t.Errorf("released without having seen a pod: %+v", d)
		case e.Pod.UID == "1" && e.Endpoint.OwnerUID == "1" && !e.Pod.Completed:
			t.Errorf("released a living owner's endpoint: %+v", d)
		case isQuarantined && !(e.Awaited && e.Pod.UID == "2" && (e.Node == silent || e.Node == deleted || e.Node == outOfService)):
			t.Errorf("released before the end of the quarantine: %+v of %+v", d, e)
		case p.Fencing == Strict && (e.Node == silent || e.Node == unknownNode):
			t.Errorf("strict, and released on a node that may still run: %+v", d)
		}
	})
	if releases == 0 || early == 0 {
		t.Errorf("%d releases, %d of them early: this test proves nothing", releases, early)
	}
}

// everything calls f with every combination of what can be known.
func everything(f func(Evidence, Policy)) {
	pods := []Pod{{}, {Lookup: NotFound}, running("1"), running("2"), completed("1", 0), completed("1", time.Hour), completed("2", time.Hour), mirror("2", "h")}
	for _, pod := range pods {
		for _, node := range []Node{ready, silent, outOfService, deleted, unknownNode} {
			for _, uid := range []types.UID{"", "1"} {
				for _, ago := range []time.Duration{0, 59 * time.Second, time.Hour} {
					for _, p := range []Policy{policy, strict} {
						e := owned(uid, ago, pod, node)
						f(e, p)
						f(awaited(e), p)
					}
				}
			}
		}
	}
}

func TestParseFencing(t *testing.T) {
	for _, f := range []Fencing{Contract, Strict} {
		if got, err := ParseFencing(string(f)); err != nil || got != f {
			t.Errorf("ParseFencing(%q) = %q, %v", f, got, err)
		}
	}
	if _, err := ParseFencing("loose"); err == nil {
		t.Error("an unknown policy was accepted")
	}
}
