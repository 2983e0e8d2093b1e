package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestAuditAndExplainRefuseWrongCommandLines(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{"audit leftover", `unexpected argument "leftover"`},
		{"audit --yes", "--yes needs --fix"},
		{"audit --fix --json", "needs --yes"},
		{"audit --confirm -1s", "--confirm must not be negative"},
		{"audit --fencing loose", "unknown fencing policy"},
		{"audit --leader-elect", "unknown flag"},
		{"explain", "explain takes ep, pod or ip"},
		{"explain node n", `cannot explain a "node"`},
		{"explain ip 10.0.0.300", "10.0.0.300"},
		{"audit --kubeconfig /nonexistent", "--kubeconfig /nonexistent"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if code := run(context.Background(), strings.Fields(tt.args), &stdout, &stderr); code != exitUsage {
				t.Errorf("exit code %d, want %d", code, exitUsage)
			}
			if !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("stderr %q lacks %q", stderr.String(), tt.want)
			}
		})
	}
}

func TestOnlyYesIsAYes(t *testing.T) {
	for answer, want := range map[string]bool{"y\n": true, "Yes\n": true, "n\n": false, "\n": false, "": false, "yesterday\n": false} {
		if got := agrees(strings.NewReader(answer), &bytes.Buffer{}, 1); got != want {
			t.Errorf("%q: %v, want %v", answer, got, want)
		}
	}
}
