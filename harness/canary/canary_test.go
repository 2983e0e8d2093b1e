package canary

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

func TestEveryCanaryStatesItsDefect(t *testing.T) {
	if len(Names()) < 20 {
		t.Fatalf("canaries: %v", Names())
	}
	defects := map[string]bool{}
	for _, name := range Names() {
		should, may := Breaks(name)
		if Defect(name) == "" || defects[Defect(name)] || Scenario(name) == "" || len(should) == 0 || Validate(name) != nil {
			t.Errorf("%s: defect %q, valid: %v", name, Defect(name), Validate(name))
		}
		defects[Defect(name)] = true
		for _, number := range may {
			if slices.Contains(should, number) {
				t.Errorf("%s should and may break %s", name, number)
			}
		}
		if _, isChange := ChangeOf(name, danm.GroupDanmIO); isChange == (registry()[name].run != nil) {
			t.Errorf("%s is both a cleaner of its own and a change of the one that ships, or neither", name)
		}
	}
}

func TestAnUnknownCanaryIsRefused(t *testing.T) {
	err := Run(context.Background(), "parrot", Config{})
	if want := `unknown canary "parrot": use one that danm-chaos list names`; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestAChangeDoesNotRunByItself(t *testing.T) {
	if err := Run(t.Context(), "no-repair", Config{}); err == nil || !strings.Contains(err.Error(), "change of the cleaner that ships") {
		t.Errorf("got %v", err)
	}
}

func TestClearing(t *testing.T) {
	const reported = "gDwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="
	network := &danm.Network{TypeMeta: metav1.TypeMeta{Kind: "DanmNet"}}
	network.Spec.Options = danm.NetworkOptions{CIDR: "10.10.10.0/24", Alloc: reported, Routes: map[string]string{"0.0.0.0/0": "10.10.10.12"}}
	tests := []struct {
		name, address string
		wantNew       string // empty: nothing to clear
	}{
		{"a set bit is cleared", "10.10.10.10", "gBwAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAE="},
		{"a free bit is left alone", "10.10.10.15", ""},
		{"the gateway is left alone", "10.10.10.12", ""},
		{"the first address is left alone", "10.10.10.0", ""},
		{"an address outside the network is left alone", "10.10.11.10", ""},
		{"a family without bitmap is left alone", "2001:db8::1", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			change, ok, err := clearing(network, netip.MustParseAddr(tt.address))
			if err != nil || ok != (tt.wantNew != "") || change.New != tt.wantNew {
				t.Errorf("got %+v, %v, %v; want %q", change, ok, err, tt.wantNew)
			}
			if ok && change.Old != reported {
				t.Errorf("compares with %q", change.Old)
			}
		})
	}
}

func TestClearingNamesAMalformedNetwork(t *testing.T) {
	network := &danm.Network{TypeMeta: metav1.TypeMeta{Kind: "DanmNet"}, ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "n"}}
	network.Spec.Options = danm.NetworkOptions{CIDR: "10.10.10.0/24", Alloc: "gA=="}
	_, _, err := clearing(network, netip.MustParseAddr("10.10.10.10"))
	if want := "DanmNet a/n: spec.Options.alloc: 8 bits, but 10.10.10.0/24 has 256 addresses"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
