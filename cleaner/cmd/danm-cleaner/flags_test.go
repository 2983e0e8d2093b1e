package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/danm-chaos/danm-chaos/cleaner"
)

func TestRequestsNameTheProgram(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"clusters":[{"name":"c","cluster":{"server":"https://127.0.0.1:1"}}],"contexts":[{"name":"c","context":{"cluster":"c"}}],"current-context":"c"}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	config, err := (&flags{kubeconfig: file}).restConfig()
	if err != nil {
		t.Fatal(err)
	}
	if config.UserAgent != cleaner.LeaseName {
		t.Errorf("the user agent is %q, want %q", config.UserAgent, cleaner.LeaseName)
	}
}
