package audit

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ownership"
)

const (
	ip10, ip11, ip15 = "10.10.10.10", "10.10.10.11", "10.10.10.15"
	ip6              = "2001:db8:1::15"
)

func TestExamine(t *testing.T) {
	unowned := lastEndpoint(func(e *danm.Endpoint) { e.Spec.PodUID = "" })
	f := func(name string, w World, p ownership.Policy, consistent bool, want ...string) {
		t.Run(name, func(t *testing.T) {
			r := Examine(w, p)
			got := []string{}
			for _, f := range r.Findings {
				got = append(got, fmt.Sprintf("%s %s %s", f.Kind, f.Address, f.Reason))
			}
			slices.Sort(got)
			if diff := cmp.Diff(append([]string{}, want...), got); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
			if r.Consistent != consistent {
				t.Errorf("consistent %v, want %v", r.Consistent, consistent)
			}
		})
	}
	f("an empty cluster is consistent", build(), policy, true)
	f("a living pod with endpoint and bit is consistent",
		build(net4(ip15), ep("a", "p", ip15+"/24", ""), pod("p", "p-1")), policy, true)
	f("a terminating pod whose CNI DEL has cleared the bit is consistent",
		build(net4(), ep("a", "p", ip15, ""), pod("p", "p-1"), lastPod(func(p *Pod) { p.Terminating = true })), policy, true)

	f("no pod of that name: leaked", build(net4(ip15), ep("a", "p", ip15, "")), policy, false, "LeakedEndpoint 10.10.10.15 PodGone")
	f("another pod of that name: leaked", build(net4(ip15), ep("a", "p", ip15, ""), pod("p", "p-2")), policy, false, "LeakedEndpoint 10.10.10.15 PodReplaced")
	f("completed long ago on a ready node: leaked",
		build(net4(ip15), ep("a", "p", ip15, ""), pod("p", "p-1"), completed(time.Hour), node(true)), policy, false, "LeakedEndpoint 10.10.10.15 PodCompleted")
	f("leaked without an address", build(net4(), ep("a", "p", "none", "")), policy, false, "LeakedEndpoint  PodGone")
	f("leaked in both families", build(netV6(ip6), ep("a", "p", ip15, ip6)), policy, false,
		"ForeignAddress 10.10.10.15 ", "LeakedEndpoint 10.10.10.15, 2001:db8:1::15 PodGone")

	f("completed just now: held for its CNI DEL",
		build(net4(ip15), ep("a", "p", ip15, ""), pod("p", "p-1"), completed(0), node(true)), policy, true, "Held 10.10.10.15 CompletedAllowance")
	f("completed on a silent node: held",
		build(net4(ip15), ep("a", "p", ip15, ""), pod("p", "p-1"), completed(time.Hour), node(false)), policy, true, "Held 10.10.10.15 NodeNotFenced")
	f("strict, no pod, silent node: held", build(net4(ip15), ep("a", "p", ip15, ""), node(false)), strict, true, "Held 10.10.10.15 NodeNotFenced")
	paused := func(w *World) { w.Networks[0].Annotations = map[string]string{danm.PauseAnnotation: "true"} }
	f("no pod of that name, paused network: held",
		build(net4(ip15), paused, ep("a", "p", ip15, "")), policy, true, "Held 10.10.10.15 NetworkPaused")
	f("a set bit that nobody has, paused network: held", build(net4(ip15), paused), policy, true, "Held 10.10.10.15 NetworkPaused")
	f("a living pod without its bit, paused network: to be set again",
		build(net4(), paused, ep("a", "p", ip15, ""), pod("p", "p-1")), policy, false, "MissingBit 10.10.10.15 ")
	f("names no pod: held", build(net4(ip15), ep("a", "", ip15, "")), policy, true, "Held 10.10.10.15 PodUnknown")

	f("a set bit that nobody has: orphan", build(net4(ip15)), policy, false, "OrphanBit 10.10.10.15 ")
	f("a set bit outside the dynamic pool: an administrator's", build(net4("10.10.10.200")), policy, true, "StaticBit 10.10.10.200 ")
	f("a set bit that a ReservedIP sets aside: counted", build(net4(ip15), reservedIP(t, ip15, false)), policy, true)
	f("a set bit next to an unreadable endpoint: unjudged", build(net4(ip15), malformedEndpoint), policy, false, "Held 10.10.10.15 Unjudged", "MalformedObject  ")
	f("a set bit next to an unreadable address: unjudged",
		build(net4(ip15), ep("a", "p", "dynamic", ""), pod("p", "p-1")), policy, false, "Held 10.10.10.15 Unjudged", "MalformedObject  ")
	f("endpoints could not be listed: bits are unjudged", build(net4(ip15), unread(danm.EndpointResource)), policy, false, "Held 10.10.10.15 Unjudged")
	f("ReservedIPs could not be listed: bits are unjudged", build(net4(ip15), unread(danm.ReservedIPResource)), policy, false, "Held 10.10.10.15 Unjudged")
	f("pods could not be listed: nothing is leaked", build(net4(ip15), ep("a", "p", ip15, ""), unread(PodResource)), policy, false, "Held 10.10.10.15 PodUnknown")
	f("nodes could not be listed, strict: held", build(net4(ip15), ep("a", "p", ip15, ""), unread(NodeResource)), strict, false, "Held 10.10.10.15 NodeNotFenced")

	f("a living pod whose bit is clear: missing", build(net4(), ep("a", "p", ip15, ""), pod("p", "p-1")), policy, false, "MissingBit 10.10.10.15 ")
	f("two living pods on one address: duplicate",
		build(net4(ip15), ep("a", "p", ip15, ""), ep("b", "q", ip15, ""), pod("p", "p-1"), pod("q", "q-1")), policy, false, "DuplicateAddress 10.10.10.15 ")
	f("a living and a dead pod on one address: only a leak",
		build(net4(ip15), ep("a", "p", ip15, ""), ep("b", "q", ip15, ""), pod("p", "p-1")), policy, false, "LeakedEndpoint 10.10.10.15 PodGone")
	f("two living pods share a shareable ReservedIP",
		build(net4(ip15), ep("a", "p", ip15, ""), ep("b", "q", ip15, ""), pod("p", "p-1"), pod("q", "q-1"), reservedIP(t, ip15, true)), policy, true, "SharedAddress 10.10.10.15 ")
	f("two living pods on a ReservedIP for one: duplicate",
		build(net4(ip15), ep("a", "p", ip15, ""), ep("b", "q", ip15, ""), pod("p", "p-1"), pod("q", "q-1"), reservedIP(t, ip15, false)), policy, false, "DuplicateAddress 10.10.10.15 ")
	f("two endpoints for one interface of a pod", build(net4(ip10, ip11), pod("p", "p-1"),
		ep("a", "p", ip10, ""), lastEndpoint(func(e *danm.Endpoint) { e.Spec.Interface.Name = "eth0" }),
		ep("b", "p", ip11, ""), lastEndpoint(func(e *danm.Endpoint) { e.Spec.Interface.Name = "eth0" })), policy, false, "DoubleInterface 10.10.10.10, 10.10.10.11 ")

	f("no address, none, IPv4 only and IPv6 only are all in order", build(netV6(ip6), ep("a", "p", "", ""), ep("b", "p", "none", "none"),
		ep("c", "p", "", ip6), ep("d", "p", "none", ""), pod("p", "p-1")), policy, true)
	f("a delegated network: the address is foreign", build(network("n", danm.NetworkOptions{}), ep("a", "p", ip15, ""), pod("p", "p-1")), policy, true, "ForeignAddress 10.10.10.15 ")
	f("static IPv6 outside the pool has no bit", build(netV6(), ep("a", "p", "", "2001:db8:1::1:0"), pod("p", "p-1")), policy, true, "OutsidePool 2001:db8:1::1:0 ")
	f("a living pod on a network that does not exist", build(ep("a", "p", ip15, ""), pod("p", "p-1")), policy, false, "NoNetwork 10.10.10.15 ")
	f("networks could not be listed: none is missing", build(ep("a", "p", ip15, ""), pod("p", "p-1"), unread(danm.DanmNetResource)), policy, false)
	f("no PodUID, pod older than the endpoint: alive", build(net4(ip15), ep("a", "p", ip15, ""), unowned, pod("p", "p-1")), policy, true, "LegacyEndpoint  ")
	f("no PodUID, pod younger: leaked", build(net4(ip15), ep("a", "p", ip15, ""), unowned, pod("p", "p-1"), lastPod(func(p *Pod) { p.Evidence.Created = now })),
		policy, false, "LeakedEndpoint 10.10.10.15 PodReplaced", "LegacyEndpoint  ")
	f("a bitmap that is too short: malformed",
		build(network("n", danm.NetworkOptions{CIDR: cidr, Alloc: "gA=="}), ep("a", "p", ip15, ""), pod("p", "p-1")), policy, false,
		"ForeignAddress 10.10.10.15 ", "MalformedObject  ")
	f("a migration is never consistent", build(func(w *World) { w.Migration = "both groups" }), policy, false)
}

func TestRowsCount(t *testing.T) {
	w := build(net4(ip10, ip11, ip15, "10.10.10.200"), ep("a", "p", ip10, ""), pod("p", "p-1"), ep("b", "q", ip11, ""), ep("c", "p", "10.10.10.12", ""))
	want := []Row{{Network: danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns", Name: "n"}, Family: danm.IPv4, CIDR: cidr,
		Size: 254, InUse: 4, Free: 250, FreeDynamic: 8, LeakedEndpoints: 1, OrphanBits: 1, MissingBits: 1}}
	if diff := cmp.Diff(want, Examine(w, policy).Networks); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestConfirmDropsWhatOnlyOneLookFound(t *testing.T) {
	first := Examine(build(net4(ip10)), policy)
	both := Examine(build(net4(ip10, ip15)), policy)
	both.Confirm(first)
	if got := both.With(Fixable); len(got) != 1 || got[0].Address != ip10 || both.Consistent {
		t.Errorf("kept %+v", got)
	}
	passed := Examine(build(net4(ip15)), policy)
	passed.Confirm(first)
	if !passed.Consistent || passed.Networks[0].OrphanBits != 0 {
		t.Errorf("an ADD under way is no inconsistency: %+v", passed)
	}
}

func TestScopeIsWhatWasShown(t *testing.T) {
	shown := build(net4(ip10, ip15), ep("a", "p", ip10, ""), ep("b", "q", ip11, ""), pod("q", "q-1"))
	s := ScopeOf(Examine(shown, policy))
	ref := shown.Networks[0].Ref()
	var none *Scope
	for _, tt := range []struct {
		name      string
		got, want bool
	}{
		{"the leaked endpoint", s.Releases("uid-a"), true},
		{"the living endpoint", s.Releases("uid-b"), false},
		{"the leaked endpoint's bit", s.Clears(ref, mustAddr(ip10)), true},
		{"the orphan bit", s.Clears(ref, mustAddr(ip15)), true},
		{"a bit that was not shown", s.Clears(ref, mustAddr(ip11)), false},
		{"the missing bit", s.Repairs("uid-b"), true},
		{"no scope allows everything", none.Releases("x") && none.Repairs("x") && none.Clears(ref, mustAddr(ip11)), true},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, tt.got, tt.want)
		}
	}
	for name, step := range map[string]struct {
		w    World
		want int
	}{
		"at first":                       {shown, 3},
		"the endpoint gone, its bit not": {build(net4(ip10, ip11), pod("q", "q-1"), ep("b", "q", ip11, "")), 1},
		"all healed":                     {build(net4(ip11), pod("q", "q-1"), ep("b", "q", ip11, "")), 0},
	} {
		if got := s.Remaining(step.w, policy); got != step.want {
			t.Errorf("%s: %d remain, want %d", name, got, step.want)
		}
	}
}
