package hollow_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

func TestTheSchemaAcceptsWhatDanmWrites(t *testing.T) {
	network, endpoint := danm.DanmNetResource, danm.EndpointResource
	for _, tc := range []struct {
		name, resource, spec string
		isRefused            bool
	}{
		{"an L2 network", network, `{"NetworkID":"n","Options":{"vlan":5}}`, false},
		{"an L2 network with empty strings and nulls", network, `{"NetworkID":"n","Options":{"cidr":"","net6":"","routes":null,"routes6":null,"allocation_pool":{"start":"","end":"","lastIp":""},"allocation_pool_v6":{"start":"","end":"","cidr":"","lastIp":""}}}`, false},
		{"an L3 network", network, `{"NetworkID":"n","Options":{"cidr":"10.0.0.0/24","alloc":"gA==","allocation_pool":{"start":"10.0.0.1","end":"10.0.0.9","lastIp":"10.0.0.3/24"},"routes":{"10.1.0.0/16":"10.0.0.254"}}}`, false},
		{"an IPv6 network", network, `{"NetworkID":"n","Options":{"net6":"2001:db8::/64","alloc6":"gA==","allocation_pool_v6":{"start":"2001:db8::1","end":"2001:db8::9","cidr":"2001:db8::/120","lastIp":"2001:db8::3/64"}}}`, false},
		{"fields of a later release", network, `{"NetworkID":"n","Next":{"a":1},"Options":{"mtu":9000,"allocation_pool":{"skip":["10.0.0.7"]}}}`, false},
		{"a malformed bitmap, which a cleaner must survive", network, `{"NetworkID":"n","Options":{"cidr":"10.0.0.0/24","alloc":"%"}}`, false},
		{"not a cidr that is none", network, `{"NetworkID":"n","Options":{"cidr":"10.0.0.0"}}`, true},
		{"not a number as alloc", network, `{"NetworkID":"n","Options":{"alloc":5}}`, true},
		{"an endpoint with fields of a later release", endpoint, `{"NetworkName":"n","NetworkType":"ipvlan","EndpointID":"e","Pod":"p","Next":1,"Interface":{"Name":"eth0","Address":"10.0.0.1/24","AddressIPv6":"none","proutes":null,"Mtu":9000}}`, false},
		{"an endpoint of an old release", endpoint, `{"NetworkName":"n","NetworkType":"ipvlan","EndpointID":"e","Pod":"p","apiType":"","Interface":{"Name":"eth0","Address":"10.0.0.1/24","AddressIPv6":""}}`, false},
		{"not an endpoint of an unknown kind of network", endpoint, `{"NetworkName":"n","NetworkType":"ipvlan","EndpointID":"e","Pod":"p","apiType":"PodNet","Interface":{"Name":"eth0"}}`, true},
		{"a reserved address", danm.ReservedIPResource, `{"network":{"name":"n","type":"DanmNet"},"ips":[{"address":"10.0.0.1","shareable":true}]}`, false},
	} {
		for _, g := range danm.Groups() {
			t.Run(tc.name+" in "+string(g), func(t *testing.T) {
				checkSchema(t, g, tc.resource, tc.spec, tc.isRefused)
			})
		}
	}
}

// checkSchema creates an object and compares its spec with what was sent.
func checkSchema(t *testing.T, g danm.Group, resource, spec string, isRefused bool) {
	t.Helper()
	var want map[string]any
	if err := json.Unmarshal([]byte(spec), &want); err != nil {
		t.Fatal(err)
	}
	kinds := map[string]string{
		danm.DanmNetResource: string(danm.DanmNet), danm.EndpointResource: danm.EndpointKind, danm.ReservedIPResource: "ReservedIP",
	}
	u := &unstructured.Unstructured{}
	data := fmt.Sprintf(`{"apiVersion":"%s/v1","kind":"%s","metadata":{"generateName":"schema-"},"spec":%s}`, g, kinds[resource], spec)
	if err := u.UnmarshalJSON([]byte(data)); err != nil {
		t.Fatal(err)
	}
	created, err := needServer(t).dyn.Resource(g.Resource(resource)).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{})
	if isRefused {
		if !apierrors.IsInvalid(err) {
			t.Errorf("error %v, want Invalid", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	text, err := json.Marshal(created.Object["spec"])
	if err == nil {
		err = json.Unmarshal(text, &got)
	}
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec as stored (-sent +stored):\n%s", diff)
	}
}
