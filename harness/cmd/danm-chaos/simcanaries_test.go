package main

import (
	"testing"

	"github.com/danm-chaos/danm-chaos/harness/check"
)

func TestACanaryIsFoundByWhatItShouldBreak(t *testing.T) {
	tests := []struct {
		name, canary string
		broken       []check.Invariant
		isBroken     bool
		isExpected   bool
	}{
		{"nothing is broken", "bit-first", nil, false, true},
		{"what it should break is", "bit-first", []check.Invariant{check.LiveAttachment}, true, true},
		{"a consequence alone does not show it", "bit-first", []check.Invariant{check.Convergence}, false, true},
		{"a consequence beside it is expected", "bit-first", []check.Invariant{check.Convergence, check.LiveAttachment, check.LiveAttachment}, true, true},
		{"something else is broken", "bit-first", []check.Invariant{check.ReservedBits}, false, false},
		{"something else is broken, too", "no-sweep", []check.Invariant{check.Convergence, check.LiveAttachment}, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var violations []check.Violation
			for _, i := range tt.broken {
				violations = append(violations, check.Violation{Invariant: i})
			}
			isBroken, isExpected := judgeCanary(tt.canary, violations)
			if isBroken != tt.isBroken || isExpected != tt.isExpected {
				t.Errorf("broken %v, expected %v; want %v, %v", isBroken, isExpected, tt.isBroken, tt.isExpected)
			}
		})
	}
}
