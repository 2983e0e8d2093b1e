package kind

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/kind/nodeimage"
)

const (
	plainEngine = `{"ServerVersion":"28.2.2","CgroupVersion":"2","DockerRootDir":"/var/lib/docker","MemTotal":8589934592,
		"DefaultRuntime":"runc","Runtimes":{"runc":{"path":"runc"}}}`
	wrappedEngine = `{"ServerVersion":"20.10.24","CgroupVersion":"1","DefaultRuntime":"relaxed",
		"Runtimes":{"runc":{"path":"runc"},"relaxed":{"path":"/x/oci-wrapper"}}}`
	fullStatus = "Name:\tx\nCapBnd:\t000001ffffffffff\n"
	poorStatus = "Name:\tx\nCapBnd:\t000001fffeffffff\n"
)

func TestHostCheck(t *testing.T) {
	tests := []struct {
		name, info, status string
		fit                bool
	}{
		{"a host with all capabilities needs nothing", plainEngine, fullStatus, true},
		{"without CAP_SYS_RESOURCE plain runc cannot start a node", plainEngine, poorStatus, false},
		{"without it the wrapper can", wrappedEngine, poorStatus, true},
		{"the wrapper does no harm where it is not needed", wrappedEngine, fullStatus, true},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			h, err := parseHost(test.info, test.status)
			if err != nil {
				t.Fatal(err)
			}
			err = h.checkRuntime()
			if (err == nil) != test.fit {
				t.Fatalf("fit %v, but the check says %v", test.fit, err)
			}
			if e := (*UnfitHostError)(nil); err != nil && (!errors.As(err, &e) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("not one line with the cure: %v", err)
			}
		})
	}
}

func TestAHostWithoutDiskIsUnfit(t *testing.T) {
	h := host{runtime: "runc", folder: "/proc"} // which has no space at all
	if e := (*UnfitHostError)(nil); !errors.As(h.check(), &e) {
		t.Errorf("check says %v", h.check())
	}
}

func TestParseHost(t *testing.T) {
	got, err := parseHost(plainEngine, fullStatus)
	if err != nil {
		t.Fatal(err)
	}
	want := host{version: "28.2.2", folder: "/var/lib/docker", memory: 8 << 30, runtime: "runc"}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(host{})); diff != "" {
		t.Error(diff)
	}
	for _, bad := range [][2]string{{"nonsense", fullStatus}, {plainEngine, "Name:\tx\n"}, {plainEngine, "CapBnd:\tzz\n"}} {
		if h, err := parseHost(bad[0], bad[1]); err == nil {
			t.Errorf("%q became %+v without an error", bad, h)
		}
	}
}

func TestFindingsSayWhatToDo(t *testing.T) {
	poor, err := parseHost(plainEngine, poorStatus)
	if err != nil {
		t.Fatal(err)
	}
	findings := []controlplane.Finding{
		unfit("container engine", &UnfitHostError{Detail: "there is none", Cure: "install one"}),
		examineRuntime(poor),
		examineMemory(host{memory: 1 << 30}),
		examineImage(nodeimage.Plan{Trouble: errors.New("no debootstrap")}, ""),
	}
	for _, f := range findings {
		if f.OK || f.Cure == "" {
			t.Errorf("%s: %+v has no cure", f.Name, f)
		}
	}
	for _, f := range []controlplane.Finding{
		examineCgroup(host{cgroupV1: true}), examineMemory(host{memory: 4 << 30}),
		examineImage(nodeimage.Plan{Image: "x", IsThere: true}, ""), examineImage(nodeimage.Plan{Image: "x"}, "x"),
		examineImage(nodeimage.Plan{Image: "x"}, ""),
	} {
		if !f.OK || f.Cure != "" {
			t.Errorf("%s: %+v is trouble", f.Name, f)
		}
	}
}

func TestDoctorKnowsWhichFaultsTheKernelCanDo(t *testing.T) {
	tests := []struct {
		name    string
		cgroups string // nothing: no such file
		files   []string
		v1      bool
		without []string
	}{
		{"cgroup v2 freezes by itself", "", []string{"net/netfilter"}, false, nil},
		{"cgroup v1 with its controller", "#name h n e\nfreezer\t5\t1\t1\n", []string{"net/ip_tables_names"}, true, nil},
		{"cgroup v1 without it", "#name h n e\nfreezer\t0\t1\t0\n", []string{"net/ip_tables_names"}, true, []string{"fault: a node hangs"}},
		{"no packet filter", "", nil, false, []string{"fault: a node is cut off"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			proc := t.TempDir()
			for _, name := range append(test.files, "cgroups") {
				path := filepath.Join(proc, name)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(test.cgroups), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			var without []string
			for _, f := range examineFaults(proc, host{cgroupV1: test.v1}) {
				if !f.Optional {
					t.Errorf("a run without %s is still a run", f.Name)
				}
				if !f.OK {
					without = append(without, f.Name)
				}
			}
			if diff := cmp.Diff(test.without, without); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAHostWithFixedCgroupsIsUnfit(t *testing.T) {
	h := host{runtime: "runc", folder: t.TempDir(), hasFixedCgroups: true}
	if e := (*UnfitHostError)(nil); !errors.As(h.check(), &e) || !strings.Contains(e.Detail, "/sys/fs/cgroup is mounted read-only") {
		t.Errorf("check says %v", h.check())
	}
	if f := examineCgroup(h); f.OK || f.Cure == "" {
		t.Errorf("doctor says %+v", f)
	}
	if isReadOnly(t.TempDir()) || isReadOnly("/no/such/folder") {
		t.Error("a folder that can be written, or is not there, counts as read-only")
	}
}
