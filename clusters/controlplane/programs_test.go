package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
)

// pollBriefly waits some seconds for what must come soon.
func pollBriefly(t *testing.T, condition func() bool) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	return poll(ctx, func(context.Context) (bool, error) { return condition(), nil })
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func TestAPrebuiltProgramThatIsMissingIsNamed(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "etcd"), "", 0o755)
	writeFile(t, filepath.Join(dir, "kube-apiserver"), "", 0o644)
	writeFile(t, filepath.Join(dir, "kube-scheduler"), "", 0o755)
	t.Setenv(binDirVariable, dir)
	_, err := obtainPrograms(t.Context(), t.Output())
	want := "finding programs: KUBERNETES_BIN_DIR=" + dir + " has no executable kube-apiserver, kube-controller-manager"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestOutsideACheckoutTheCureIsNamed(t *testing.T) {
	t.Setenv(binDirVariable, "")
	t.Chdir(t.TempDir())
	_, _, err := findPrograms(t.Context())
	if err == nil || !strings.Contains(err.Error(), "no checkout of this project above") || !strings.Contains(err.Error(), binDirVariable) {
		t.Errorf("error %v", err)
	}
}

func TestWithoutAGoCommandTheCureIsNamed(t *testing.T) {
	root := fakeProject(t)
	t.Setenv("PATH", t.TempDir())
	_, err := newRecipe(t.Context(), root, t.TempDir(), toolSets()[0])
	if err == nil || !strings.Contains(err.Error(), "no go command") || !strings.Contains(err.Error(), binDirVariable) {
		t.Errorf("error %v", err)
	}
}

func TestRequiredVersion(t *testing.T) {
	const goMod = "module m\n\nrequire a.b/single v0.1.0\n\nrequire (\n\ta.b/c v1.2.3 // indirect\n\ta.b/c/v3 v3.0.1\n)\n\nreplace a.b/r => a.b/r v9.9.9\n"
	tests := []struct{ name, module, want string }{
		{"in a block", "a.b/c", "v1.2.3"},
		{"a longer path is another module", "a.b/c/v3", "v3.0.1"},
		{"on a line of its own", "a.b/single", "v0.1.0"},
		{"a replacement is no requirement", "a.b/r", ""},
		{"absent", "x.y/z", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := requiredVersion([]byte(goMod), tt.module)
			if got != tt.want || (err == nil) != (tt.want != "") {
				t.Errorf("got %q, %v; want %q", got, err, tt.want)
			}
		})
	}
}

func TestKubernetesIsToldItsVersion(t *testing.T) {
	got, err := linkerFlags(toolSet{kubernetes: true}, "v1.37.2")
	want := "-s -w -X k8s.io/component-base/version.gitVersion=v1.37.2 -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37"
	if got != want || err != nil {
		t.Errorf("got %s, %v", got, err)
	}
	if got, err := linkerFlags(toolSet{}, "v3.7.3"); got != "-s -w" || err != nil {
		t.Errorf("etcd: got %s, %v", got, err)
	}
	if _, err := linkerFlags(toolSet{kubernetes: true}, "v1"); err == nil {
		t.Error("version v1 was accepted")
	}
}

func TestTheCacheKeyChangesWithEveryPart(t *testing.T) {
	keys := map[string]string{}
	for _, parts := range []string{"mod|sum|flags|go", "mod2|sum|flags|go", "mod|sum2|flags|go", "mod|sum|flags2|go", "mod|sum|flags|go2", "mods|um|flags|go", "mod|sum|flags"} {
		var bytes [][]byte
		for _, p := range strings.Split(parts, "|") {
			bytes = append(bytes, []byte(p))
		}
		key := cacheKey(bytes...)
		if other, taken := keys[key]; taken {
			t.Errorf("%s and %s have the same key", parts, other)
		}
		if key != cacheKey(bytes...) {
			t.Errorf("%s has two keys", parts)
		}
		keys[key] = parts
	}
}

// fakeProject is a checkout with the tool modules of this one, without code.
func fakeProject(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	for _, set := range toolSets() {
		writeFile(t, filepath.Join(toolModule(root, set.name), "go.mod"), "module m\n\nrequire "+set.module+" v1.2.3\n", 0o644)
	}
	return root
}

// fakeGo puts a go command into PATH that does what the script says for
// `go build`. $out is the program to write; every build is counted.
func fakeGo(t *testing.T, script string) (root, cache string, builds func() int) {
	t.Helper()
	isolate(t)
	t.Setenv(binDirVariable, "")
	root = fakeProject(t)
	t.Chdir(root)
	bin, counter := t.TempDir(), filepath.Join(t.TempDir(), "builds")
	writeFile(t, filepath.Join(bin, "go"), `#!/bin/sh
if [ "$1" = env ]; then echo fake; exit; fi
echo x >> `+counter+`
while [ $# -gt 1 ]; do if [ "$1" = -o ]; then out=$2; fi; shift; done
`+script, 0o755)
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	cache, err := cacheFolder()
	if err != nil {
		t.Fatal(err)
	}
	return root, cache, func() int {
		data, _ := os.ReadFile(counter)
		return strings.Count(string(data), "x")
	}
}

const goodBuild = `echo some/package >&2; echo other/package >&2; echo program > "$out"; chmod +x "$out"`

func TestProgramsAreBuiltOnceAndShown(t *testing.T) {
	_, cache, builds := fakeGo(t, goodBuild)
	var progress strings.Builder
	for range 2 {
		found, err := obtainPrograms(t.Context(), &progress)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{etcdProgram, apiserverProgram, controllerManagerProgram, schedulerProgram} {
			if !isExecutable(found[name]) || !strings.HasPrefix(found[name], cache) {
				t.Errorf("%s is at %q", name, found[name])
			}
		}
	}
	if builds() != 4 {
		t.Errorf("%d builds, want 4", builds())
	}
	for _, name := range []string{etcdProgram, apiserverProgram, controllerManagerProgram, schedulerProgram} {
		if want := "built " + name + " v1.2.3: 2 packages compiled"; strings.Count(progress.String(), want) != 1 {
			t.Errorf("%q is not there once in:\n%s", want, progress.String())
		}
	}
	checkNoStaging(t, cache)
}

func checkNoStaging(t *testing.T, cache string) {
	t.Helper()
	left, err := filepath.Glob(filepath.Join(cache, "tools", ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("build folders left: %v, %v", left, err)
	}
}

func TestTwoRunsDoNotBuildTheSameTwice(t *testing.T) {
	_, _, builds := fakeGo(t, goodBuild)
	var running sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		running.Go(func() { _, errs[i] = obtainPrograms(t.Context(), t.Output()) })
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil || builds() != 4 {
		t.Errorf("%d builds, error %v; want 4", builds(), err)
	}
}

func TestAFailedBuildShowsItsLastLinesAndIsNotKept(t *testing.T) {
	_, cache, builds := fakeGo(t, `seq 1000 >&2; echo 'file.go:1: undefined: x' >&2; exit 1`)
	_, err := obtainPrograms(t.Context(), t.Output())
	if err == nil || !strings.Contains(err.Error(), "building etcd") || !strings.Contains(err.Error(), "undefined: x") {
		t.Errorf("error %v", err)
	}
	if err != nil && strings.Contains(err.Error(), "\n500\n") {
		t.Error("the error holds the whole output")
	}
	if builds() != 1 {
		t.Errorf("%d builds, want 1: nothing is tried again in silence", builds())
	}
	checkNoStaging(t, cache)
}

func TestACancelledBuildEndsAtOnce(t *testing.T) {
	_, cache, builds := fakeGo(t, `sleep 1000`)
	ctx, cancel := context.WithCancel(t.Context())
	var building sync.WaitGroup
	var err error
	building.Go(func() { _, err = obtainPrograms(ctx, t.Output()) })
	if err := pollBriefly(t, func() bool { return builds() == 1 }); err != nil {
		t.Fatal("the build did not begin")
	}
	began := time.Now()
	cancel()
	building.Wait()
	if !errors.Is(err, context.Canceled) || time.Since(began) > buildStopGrace {
		t.Errorf("error %v after %s", err, time.Since(began))
	}
	checkNoStaging(t, cache)
}

func TestAPortThatWasTakenInBetweenIsTriedAgain(t *testing.T) {
	needPrograms(t)
	tests := []struct {
		name   string
		taken  int // how many starts find a port taken
		starts int
		wantOK bool
	}{
		{"once", 1, 2, true},
		{"always", 100, startAttemptsMax, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			temp := isolate(t)
			counter := filepath.Join(t.TempDir(), "starts")
			dir := t.TempDir()
			for _, name := range []string{apiserverProgram, controllerManagerProgram, schedulerProgram} {
				if err := os.Symlink(filepath.Join(os.Getenv(binDirVariable), name), filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			writeFile(t, filepath.Join(dir, etcdProgram), fmt.Sprintf("#!/bin/sh\necho x >> %s\nif [ $(wc -l < %s) -le %d ]; then echo 'listen tcp: bind: address already in use'; exit 1; fi\nexec %s \"$@\"\n",
				counter, counter, tt.taken, filepath.Join(os.Getenv(binDirVariable), etcdProgram)), 0o755)
			t.Setenv(binDirVariable, dir)
			c, err := Start(t.Context(), Options{RunID: "ports", Group: danm.GroupDanmIO, Progress: t.Output()})
			if (err == nil) != tt.wantOK {
				t.Errorf("error %v", err)
			}
			if c != nil {
				if err := c.Close(context.Background()); err != nil {
					t.Error(err)
				}
			}
			data, err := os.ReadFile(counter)
			if starts := strings.Count(string(data), "x"); starts != tt.starts || err != nil {
				t.Errorf("%d starts, want %d (%v)", starts, tt.starts, err)
			}
			checkEmpty(t, temp)
			checkNoJournal(t)
		})
	}
}

func TestDoctorNamesACureForWhatIsMissing(t *testing.T) {
	tests := []struct {
		name    string
		arrange func(t *testing.T)
		finding string
		wantOK  bool
	}{
		{"prebuilt programs are missing", func(t *testing.T) { t.Setenv(binDirVariable, t.TempDir()) }, "programs", false},
		{"programs can be built", func(t *testing.T) { fakeGo(t, goodBuild) }, "programs", true},
		{"disk space matters when programs must be built", func(t *testing.T) { fakeGo(t, goodBuild) }, "disk space for the build", true},
		{"there is no home", func(t *testing.T) { t.Setenv("XDG_CACHE_HOME", ""); t.Setenv("HOME", "") }, "cache folder", false},
		{"loopback is there", func(*testing.T) {}, "loopback ports", true},
		{"/proc is there", func(*testing.T) {}, "/proc", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tt.arrange(t)
			var got *Finding
			for _, f := range Doctor(t.Context()) {
				if f.Name == tt.finding {
					got = &f
				}
				if f.Detail == "" || f.OK != (f.Cure == "") {
					t.Errorf("a finding without detail, or without cure: %+v", f)
				}
			}
			if got == nil || got.OK != tt.wantOK {
				t.Errorf("%s: %+v, want OK %v", tt.finding, got, tt.wantOK)
			}
		})
	}
}
