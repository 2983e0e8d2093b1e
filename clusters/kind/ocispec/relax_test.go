package ocispec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestRelaxBundle(t *testing.T) {
	tests := []struct{ name, give, want string }{
		{name: "the capability goes from every set and the others stay",
			give: `{"process":{"capabilities":{"bounding":["CAP_CHOWN","CAP_SYS_RESOURCE"],"effective":["CAP_SYS_RESOURCE"]}}}`,
			want: `{"process":{"capabilities":{"bounding":["CAP_CHOWN"],"effective":[]}}}`},
		{name: "a negative score is raised to zero",
			give: `{"process":{"oomScoreAdj":-997}}`, want: `{"process":{"oomScoreAdj":0}}`},
		{name: "a positive score stays",
			give: `{"process":{"oomScoreAdj":1000}}`, want: `{"process":{"oomScoreAdj":1000}}`},
		{name: "limits are dropped",
			give: `{"process":{"rlimits":[{"type":"RLIMIT_NOFILE","hard":1048576,"soft":1048576}]}}`, want: `{"process":{}}`},
		{name: "numbers beyond a float's precision survive",
			give: `{"linux":{"resources":{"memory":{"limit":9223372036854775807}}}}`,
			want: `{"linux":{"resources":{"memory":{"limit":9223372036854775807}}}}`},
		{name: "a specification without process is left as it is",
			give: `{"ociVersion":"1.0.2"}`, want: `{"ociVersion":"1.0.2"}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := RelaxBundle([]byte(test.give))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRelaxProcessEditsTheObjectItself(t *testing.T) {
	got, err := RelaxProcess([]byte(`{"args":["sh"],"oomScoreAdj":-1,"rlimits":[]}`))
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"args":["sh"],"oomScoreAdj":0}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestRelaxRefusesWhatIsNoObject(t *testing.T) {
	for _, text := range []string{"", "[]", "{"} {
		if got, err := RelaxBundle([]byte(text)); err == nil {
			t.Errorf("%q became %q without an error", text, got)
		}
	}
}

func TestEditFor(t *testing.T) {
	tests := []struct {
		name string
		args []string
		path string // empty: nothing to edit
	}{
		{"a shim creates a container", []string{"--root", "/r", "--log", "/l", "--log-format", "json", "create", "--bundle", "/b", "--pid-file", "/p", "id"}, "/b/config.json"},
		{"options are joined with an equals sign", []string{"--root=/r", "run", "--bundle=/b", "id"}, "/b/config.json"},
		{"the short spelling", []string{"create", "-b", "/b", "id"}, "/b/config.json"},
		{"without bundle it is the working directory", []string{"create", "id"}, "config.json"},
		{"a process is added", []string{"--systemd-cgroup", "exec", "--process", "/p.json", "--detach", "id"}, "/p.json"},
		{"a process without file has nothing to edit", []string{"exec", "id", "sh"}, ""},
		{"a value that is called like a command is none", []string{"--root", "create", "state", "id"}, ""},
		{"deleting starts nothing", []string{"delete", "--force", "id"}, ""},
		{"no command", []string{"--version"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			edit, needed := EditFor(test.args)
			if needed != (test.path != "") || edit.Path != test.path {
				t.Errorf("got %q, %v; want %q", edit.Path, needed, test.path)
			}
		})
	}
}
