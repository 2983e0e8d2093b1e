package check

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/cleaner/ipam"
)

// Objects as the simulator writes them.
const (
	plainEndpoint = `{"apiVersion":"danm.io/v1","kind":"DanmEp","metadata":{"creationTimestamp":"2000-01-01T00:00:22Z","generation":1,` +
		`"name":"ep","namespace":"ns","resourceVersion":"33","uid":"u"},"spec":{"CID":"cid","EndpointID":"ep","Host":"n1",` +
		`"Interface":{"Address":"10.0.0.3/24","AddressIPv6":"2001:db8::3/64","Name":"eth0"},"NetworkName":"net","NetworkType":"ipvlan",` +
		`"Pod":"p","PodUID":"pod-uid","apiType":"TenantNetwork","netns":"/var/run/netns/cid"}}`
	plainNetwork = `{"apiVersion":"danm.io/v1","kind":"DanmNet","metadata":{"creationTimestamp":"2000-01-01T00:00:00Z","generation":2,` +
		`"name":"net","namespace":"ns","resourceVersion":"18","uid":"u"},"spec":{"NetworkID":"net","NetworkType":"ipvlan","Options":{` +
		`"alloc":"gAE=","alloc6":"gAM=","allocation_pool":{"end":"10.0.0.14","lastIp":"10.0.0.3/28","start":"10.0.0.2"},` +
		`"allocation_pool_v6":{"cidr":"2001:db8::/124","lastIp":"2001:db8::3/64","start":"2001:db8::2"},"cidr":"10.0.0.0/28",` +
		`"net6":"2001:db8::/64","routes":{"10.20.0.0/24":"10.0.0.1"},"vlan":7}}}`
)

// knownNetwork is what they are read as; the record of a write says that.
var knownNetwork = danm.NetworkRef{Kind: danm.DanmNet, Namespace: "ns", Name: "net"}

// oddities change a plain object, each in a way that encoding/json treats in its
// own way.
var oddities = map[string]func(string) string{
	"nothing is odd":            func(s string) string { return s },
	"cut off":                   func(s string) string { return s[:len(s)-1] },
	"more after it":             func(s string) string { return s + "{}" },
	"blanks":                    replacing(`":`, `" : `),
	"no object":                 func(string) string { return `[]` },
	"null":                      func(string) string { return `null` },
	"an empty object":           func(string) string { return `{}` },
	"nothing":                   func(string) string { return `` },
	"metadata is null":          replacing(`"generation"`, `"labels":null,"generation"`),
	"labels":                    replacing(`"generation"`, `"labels":{"a":"b"},"generation"`),
	"labels that are a number":  replacing(`"generation"`, `"labels":7,"generation"`),
	"a name that is a number":   replacing(`"namespace":"ns"`, `"namespace":7`),
	"a name in capitals":        replacing(`"namespace":"ns"`, `"NAMESPACE":7`),
	"no such day":               replacing(`"creationTimestamp":"2000-01`, `"creationTimestamp":"2000-14`),
	"a generation below zero":   replacing(`"generation":`, `"generation":-`),
	"a generation with a dot":   replacing(`"generation":`, `"generation":1.`),
	"a generation from zero":    replacing(`"generation":`, `"generation":0`),
	"a huge generation":         replacing(`"generation":`, `"generation":99999999999999999999`),
	"a field that is unknown":   replacing(`"spec":{`, `"spec":{"Future":{"x":[1,null]},`),
	"a spec written twice":      replacing(`"spec":{`, `"spec":{"NetworkType":"x"},"spec":{`),
	"a spec in capitals":        replacing(`"spec"`, `"SPEC"`),
	"an escape":                 replacing(`"net`, `"\u006eet`),
	"a name with an escape":     replacing(`"NetworkType"`, `"N\u0065tworkType"`),
	"a wrong escape":            replacing(`"net`, `"\xnet`),
	"an umlaut":                 replacing(`"net`, `"nät`),
	"what is no UTF-8":          replacing(`"net`, "\"n\xfft"),
	"a control character":       replacing(`"net`, "\"n\tt"),
	"a comma too many":          replacing(`"}`, `",}`),
	"a comma too few":           replacing(`,"`, `"`),
	"a string without end":      func(s string) string { return s[:strings.LastIndex(s, `"`)] },
	"a field without name":      replacing(`"NetworkType"`, `""`),
	"a status":                  replacing(`"spec":`, `"status":{},"spec":`),
	"an address in capitals":    replacing(`"Address":`, `"address":"10.0.0.9","Address":`),
	"a bitmap in capitals":      replacing(`"alloc":`, `"Alloc":"//8=","alloc":`),
	"a bitmap that is null":     replacing(`"gAE="`, `null`),
	"a bitmap of a number":      replacing(`"gAE="`, `8`),
	"a bitmap written twice":    replacing(`"alloc":`, `"alloc":"//8=","alloc":`),
	"a bitmap that is empty":    replacing(`"gAE="`, `""`),
	"a prefix that is empty":    replacing(`"10.0.0.0/28"`, `""`),
	"neither prefix nor bits":   func(s string) string { return replacing(`"10.0.0.0/28"`, `""`)(replacing(`"gAE="`, `""`)(s)) },
	"bitmaps that are left out": replacing(`"alloc":"gAE=","alloc6":"gAM=",`, ``),
	"a prefix for IPv4's pool":  replacing(`"lastIp":"10`, `"cidr":"10.9.0.0/24","lastIp":"10`),
	"another last address":      replacing(`10.0.0.3/28`, `10.0.0.4/28`),
	"another revision":          replacing(`"18"`, `"1900"`),
	"another bit":               replacing(`gAE=`, `gAU=`),
	"another bitmap":            replacing(`gAE=`, `gAAAAQ==`),
	"another gateway":           replacing(`"10.0.0.1"`, `"10.0.0.2"`),
	"routes written twice":      replacing(`"routes":`, `"routes":{"10.30.0.0/24":"10.0.0.5"},"routes":`),
	"routes of a number":        replacing(`"10.0.0.1"`, `1`),
	"a text for a number":       replacing(`"vlan":7`, `"vlan":"7"`),
}

func replacing(old, with string) func(string) string {
	return func(s string) string { return strings.Replace(s, old, with, 1) }
}

func TestAnEndpointIsReadAsByEncodingJSON(t *testing.T) {
	for name, change := range oddities {
		t.Run(name, func(t *testing.T) { compareEndpoint(t, []byte(change(plainEndpoint))) })
	}
}

func compareEndpoint(t *testing.T, data []byte) {
	t.Helper()
	var got, want danm.Endpoint
	gotErr, wantErr := decodeEndpoint(data, &got), json.Unmarshal(data, &want)
	if (gotErr == nil) != (wantErr == nil) {
		t.Fatalf("error is %v, want %v, for %s", gotErr, wantErr, data)
	}
	if wantErr == nil {
		if diff := cmp.Diff(claimOf(want), claimOf(got)); diff != "" {
			t.Errorf("wrong endpoint for %s (-want +got):\n%s", data, diff)
		}
	}
}

// claimOf is what the model keeps of an endpoint.
func claimOf(e danm.Endpoint) []string {
	e.Namespace = "ns"
	s := e.Spec
	return []string{s.Pod, string(s.PodUID), s.CID, e.Network().String(), s.Interface.Address, s.Interface.AddressIPv6}
}

func TestANetworkIsReadAsByEncodingJSON(t *testing.T) {
	for first, change := range oddities {
		for second, changeAgain := range oddities {
			t.Run(first+", then "+second, func(t *testing.T) {
				compareNetwork(t, []byte(change(plainNetwork)), []byte(changeAgain(plainNetwork)))
			})
		}
	}
}

// compareNetwork reads two versions, the second in the light of the first.
func compareNetwork(t *testing.T, versions ...[]byte) {
	t.Helper()
	var d document
	for i, data := range versions {
		var want danm.Network
		isAllocation, err := d.update(knownNetwork, data)
		if wantErr := json.Unmarshal(data, &want); (err == nil) != (wantErr == nil) {
			t.Fatalf("error is %v, want %v, for %s", err, wantErr, data)
		}
		if err != nil {
			continue
		}
		want.Kind, want.Namespace, want.Name = string(knownNetwork.Kind), knownNetwork.Namespace, knownNetwork.Name
		if diff := cmp.Diff(want.Pools(), d.stated); diff != "" {
			t.Errorf("wrong pools for version %d of %s (-want +got):\n%s", i+1, versions, diff)
		}
		if isAllocation && (i == 0 || len(changedPaths(versions[i-1], data)) > 0) {
			t.Errorf("version %d of %s changes more than allocations", i+1, versions)
		}
	}
}

func TestAWriteThatAllocatesIsKnownAsSuch(t *testing.T) {
	for name, want := range map[string]bool{
		"nothing is odd": true, "another bit": true, "another revision": true, "another bitmap": true,
		"another last address": false, "another gateway": false, "bitmaps that are left out": false,
	} {
		t.Run(name, func(t *testing.T) {
			var d document
			if _, err := d.update(knownNetwork, []byte(plainNetwork)); err != nil {
				t.Fatal(err)
			}
			got, err := d.update(knownNetwork, []byte(oddities[name](plainNetwork)))
			if err != nil || got != want {
				t.Errorf("is an allocation: %v (%v), want %v", got, err, want)
			}
		})
	}
}

// What the simulator writes must not need reflection, or a search is slow again.
func TestPlainObjectsAreReadQuickly(t *testing.T) {
	r := reader{data: []byte(plainEndpoint)}
	if r.endpoint(&danm.Endpoint{}); !r.isWhole() {
		t.Errorf("the endpoint is odd at %s", r.data[r.at:])
	}
	d := document{}
	r = reader{data: []byte(plainNetwork)}
	if d.read(&r); !r.isWhole() {
		t.Errorf("the network is odd at %s", r.data[r.at:])
	}
}

// FuzzRead: whatever an object holds, it is read as by encoding/json.
func FuzzRead(f *testing.F) {
	for _, change := range oddities {
		f.Add([]byte(plainNetwork), []byte(change(plainNetwork)))
		f.Add([]byte(change(plainNetwork)), []byte(plainNetwork))
		f.Add([]byte(change(plainEndpoint)), []byte(plainEndpoint))
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		compareEndpoint(t, first)
		compareNetwork(t, first, second)
	})
}

func TestAPoolThatIsKnownIsOpenedAsOneThatIsNot(t *testing.T) {
	known := danm.PoolFields{Object: "DanmNet ns/net", CIDR: "10.0.0.0/28", Alloc: "gAE=", Start: "10.0.0.2", Gateways: []string{"10.0.0.1"}}
	for name, change := range map[string]func(*danm.PoolFields){
		"nothing":               func(*danm.PoolFields) {},
		"a bit":                 func(f *danm.PoolFields) { f.Alloc = "gAU=" },
		"more bits":             func(f *danm.PoolFields) { f.Alloc = "gAAAAQ==" },
		"too few bits":          func(f *danm.PoolFields) { f.Alloc = "gA==" },
		"no base64":             func(f *danm.PoolFields) { f.Alloc = "gAE" },
		"the prefix":            func(f *danm.PoolFields) { f.CIDR = "10.0.0.0/29" },
		"the gateway":           func(f *danm.PoolFields) { f.Gateways = []string{"10.0.0.3"} },
		"a start outside of it": func(f *danm.PoolFields) { f.Start = "10.0.1.1" },
		"an end outside of it":  func(f *danm.PoolFields) { f.End = "10.0.1.1" },
	} {
		t.Run(name, func(t *testing.T) {
			var none *pool
			before, err := none.reopen(known)
			if err != nil {
				t.Fatal(err)
			}
			stated := known
			change(&stated)
			got, gotErr := before.reopen(stated)
			want, wantErr := ipam.Open(ipam.Spec(stated))
			if fmt.Sprint(gotErr) != fmt.Sprint(wantErr) {
				t.Fatalf("error is %v, want %v", gotErr, wantErr)
			}
			if wantErr == nil {
				comparePools(t, got, want)
			}
		})
	}
}

func comparePools(t *testing.T, got *pool, want *ipam.Pool) {
	t.Helper()
	if got.Prefix() != want.Prefix() || got.bits.Encode() != want.Encode() {
		t.Fatalf("%s %s, want %s %s", got.Prefix(), got.bits.Encode(), want.Prefix(), want.Encode())
	}
	for i := range got.bits.Len() {
		gotReason, _ := got.Reserved(i)
		wantReason, _ := want.Reserved(i)
		if gotReason != wantReason || got.IsSet(i) != want.IsSet(i) {
			t.Errorf("bit %d is %v %q, want %v %q", i, got.IsSet(i), gotReason, want.IsSet(i), wantReason)
		}
	}
}
