package cleaner

import (
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

func uids(n int, prefix string) map[types.UID]bool {
	out := map[types.UID]bool{}
	for i := range n {
		out[types.UID(fmt.Sprintf("%s%d", prefix, i))] = true
	}
	return out
}

func TestBreaker(t *testing.T) {
	for _, tt := range []struct {
		name            string
		pods, endpoints int
		suspects        int
		open            bool
	}{
		{"all is well", 500, 500, 3, false},
		{"no endpoints, no pods", 0, 0, 0, false},
		{"no pods while endpoints exist", 0, 1, 0, true},
		{"more than half, but a small cluster that lost its biggest node", 40, 150, 100, false},
		{"more than a hundred, but not more than half", 500, 1000, 500, false},
		{"more than a hundred and more than half", 500, 200, 101, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			why := (&breaker{}).why(tt.pods, tt.endpoints, uids(tt.suspects, "u"))
			if (why != "") != tt.open {
				t.Errorf("got %q, want open = %v", why, tt.open)
			}
		})
	}
}

func TestMassBreakerClosesAfterTwoListsThatAgree(t *testing.T) {
	suspects := uids(150, "u")
	b, at := &breaker{}, time.Unix(1000, 0)
	if !b.needsList(200, suspects, at) {
		t.Fatal("does not ask for the first list")
	}
	b.listed(suspects, at)
	if b.needsList(200, suspects, at.Add(massConfirmation-1)) {
		t.Fatal("asks for the second list too early")
	}
	if b.why(500, 200, suspects) == "" {
		t.Fatal("closed after one list")
	}
	b.listed(suspects, at.Add(massConfirmation))
	if why := b.why(500, 200, suspects); why != "" {
		t.Fatalf("still open after two lists that agree: %s", why)
	}
	if b.why(500, 200, uids(150, "v")) == "" {
		t.Fatal("what was confirmed for some suspects let others pass")
	}
}

func TestMassBreakerStaysOpenWhenAnOwnerCameBack(t *testing.T) {
	suspects := uids(150, "u")
	b, at := &breaker{}, time.Unix(1000, 0)
	b.listed(suspects, at)
	fewer := uids(149, "u")
	b.listed(fewer, at.Add(massConfirmation))
	if b.why(500, 200, suspects) == "" {
		t.Fatal("closed although the lists disagree")
	}
	b.listed(fewer, at.Add(2*massConfirmation))
	if why := b.why(500, 200, fewer); why != "" {
		t.Fatalf("still open although the last two lists agree: %s", why)
	}
}
