package chaosmesh

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func faultOf(a Action) Fault {
	f := Fault{Action: a, Namespace: "danm-system", Pods: []string{"cleaner-0"}}
	switch {
	case f.isOfNetwork():
		f.Addresses = []string{"10.96.0.1"}
	case f.isOfContainer():
		f.Container = "cleaner"
	}
	return f
}

// TestEveryActionNamesItsVictimsAndLeavesNothingToDefaults compares with what
// was read and found right once.
func TestEveryActionNamesItsVictimsAndLeavesNothingToDefaults(t *testing.T) {
	for _, a := range Actions() {
		t.Run(string(a), func(t *testing.T) {
			content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(faultOf(a).object(metav1.ObjectMeta{Namespace: "chaos-lane-0", Name: "x"}))
			if err != nil {
				t.Fatal(err)
			}
			delete(content, "status")
			got, err := json.MarshalIndent(content, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", string(a)+".json")
			if *update {
				if err := os.WriteFile(path, append(got, '\n'), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
				t.Errorf("the object differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAFaultThatIsNotWholeIsRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Fault)
		want   string
	}{
		{"no pod", func(f *Fault) { f.Pods = nil }, "names no pod"},
		{"no namespace", func(f *Fault) { f.Namespace = "" }, "names no pod"},
		{"an action of another tool", func(f *Fault) { f.Action = "pod-tickle" }, "unknown action"},
		{"a container kill without container", func(f *Fault) { f.Action = ContainerKill }, "names no container"},
		{"stress of no container", func(f *Fault) { f.Action = StressCPU }, "names no container"},
		{"a partition from nothing", func(f *Fault) { f.Action = NetworkPartition }, "names no address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := faultOf(PodKill)
			c.change(&f)
			if err := f.check(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}
