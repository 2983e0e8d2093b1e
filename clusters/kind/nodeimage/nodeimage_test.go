package nodeimage

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
)

func TestEveryPlacedProgramIsBuilt(t *testing.T) {
	built := map[string]bool{}
	for _, set := range toolSets() {
		for _, p := range set.Programs {
			built[p.Name] = true
		}
	}
	for folder, names := range placement {
		for _, name := range names {
			if !built[name] {
				t.Errorf("%s/%s is built by no set of tools", folder, name)
			}
		}
	}
}

func TestTagChangesWithEverythingThatGoesIn(t *testing.T) {
	base := recipe{version: "v1.37.2", kind: "v0.33.0", source: []byte("x"), tools: controlplane.Tools{Keys: []string{"etcd-v3-a"}}}
	seen := map[string]string{base.tag(): "nothing"}
	for what, change := range map[string]func(*recipe){
		"Kubernetes": func(r *recipe) { r.version = "v1.38.0" },
		"kind":       func(r *recipe) { r.kind = "v0.34.0" },
		"our source": func(r *recipe) { r.source = []byte("y") },
		"a tool":     func(r *recipe) { r.tools.Keys = []string{"etcd-v3-b"} },
	} {
		r := base
		change(&r)
		if other, taken := seen[r.tag()]; taken {
			t.Errorf("%s and %s make the same tag %s", what, other, r.tag())
		}
		seen[r.tag()] = what
	}
	if !strings.HasPrefix(base.tag(), "danm-chaos/node:v1.37.2-") {
		t.Errorf("the tag %s does not name the version", base.tag())
	}
}

func TestVersionKeyKeepsPartsApart(t *testing.T) {
	if versionKey("ab", "c") == versionKey("a", "bc") {
		t.Error("parts that are the same when put together make the same key")
	}
}

func TestKubernetesVersion(t *testing.T) {
	got, err := kubernetesVersion([]string{"etcd-v3.7.3-00", "kubernetes-v1.37.2-0123456789abcdef"})
	if err != nil || got != "v1.37.2" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := kubernetesVersion([]string{"etcd-v3.7.3-00"}); err == nil {
		t.Errorf("found %q without Kubernetes", got)
	}
}

func TestSandboxImage(t *testing.T) {
	got, err := sandboxImage("version = 2\n[plugins.x]\n  # use fixed sandbox image\n  sandbox_image = \"example/pause:3.10\"\n")
	if err != nil || got != "example/pause:3.10" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := sandboxImage("version = 2\n"); err == nil {
		t.Errorf("found %q where there is none", got)
	}
}

func TestBaseSpecAddsTheHookAndDropsLimits(t *testing.T) {
	tests := []struct{ name, give, want string }{
		{"without hooks", `{"process":{"rlimits":[1],"cwd":"/"}}`,
			`{"hooks":{"createContainer":[{"path":"/kind/bin/mount-product-files.sh"}]},"process":{"cwd":"/"}}`},
		{"after other hooks", `{"hooks":{"createContainer":[{"path":"/x"}]}}`,
			`{"hooks":{"createContainer":[{"path":"/x"},{"path":"/kind/bin/mount-product-files.sh"}]}}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var spec map[string]any
			if err := json.Unmarshal([]byte(test.give), &spec); err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(baseSpec(spec))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPlanImages(t *testing.T) {
	programs := map[string]string{"kube-proxy": "/b/kube-proxy", "coredns": "/b/coredns", "pause": "/b/pause"}
	got, err := planImages([]string{"example/kube-proxy:v1", "example/coredns/coredns:v2"}, "example/pause:3", "/root", programs)
	if err != nil {
		t.Fatal(err)
	}
	want := []containerImage{
		{tag: "example/kube-proxy:v1", program: "/b/kube-proxy", path: "usr/local/bin/kube-proxy", root: "/root", folders: rootFolders()},
		{tag: "example/coredns/coredns:v2", program: "/b/coredns", path: "coredns"},
		{tag: "example/pause:3", program: "/b/pause", path: "pause"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(containerImage{})); diff != "" {
		t.Error(diff)
	}
	if _, err := planImages([]string{"example/new-thing:v1"}, "example/pause:3", "/root", programs); err == nil {
		t.Error("an image without a program is planned")
	}
}

func TestArchiveHoldsProgramAndFoldersOfRoot(t *testing.T) {
	work := t.TempDir()
	program := filepath.Join(work, "prog")
	plant(t, program, "binary")
	plant(t, filepath.Join(work, "root/etc/conf"), "text")
	if err := os.Symlink("etc", filepath.Join(work, "root/link")); err != nil {
		t.Fatal(err)
	}
	image := containerImage{tag: "x:1", program: program, path: "usr/bin/prog", root: filepath.Join(work, "root"), folders: []string{"etc", "link"}}
	archive := pack(t, work, image)
	if again := pack(t, work, image); !bytes.Equal(archive, again) {
		t.Error("the same content makes two archives")
	}

	files := read(t, archive)
	var manifest []manifestEntry
	if err := json.Unmarshal(files["manifest.json"], &manifest); err != nil {
		t.Fatal(err)
	}
	var config imageConfig
	if err := json.Unmarshal(files[manifest[0].Config], &config); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"x:1"}, manifest[0].RepoTags); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"/usr/bin/prog"}, config.Config.Entrypoint); diff != "" {
		t.Error(diff)
	}
	if want := "sha256:" + strings.TrimSuffix(manifest[0].Layers[0], "/layer.tar"); config.RootFS.DiffIDs[0] != want {
		t.Errorf("layer %s is called %s", want, config.RootFS.DiffIDs[0])
	}
	layer := read(t, files[manifest[0].Layers[0]])
	for name, want := range map[string]string{"usr/bin/prog": "binary", "etc/conf": "text", "link": ""} {
		if got, there := layer[name]; !there || string(got) != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
}

func TestUnitsOfAHostAreDroppedAndThoseOfANodeEnabled(t *testing.T) {
	root := t.TempDir()
	plant(t, filepath.Join(root, "lib/systemd/system/multi-user.target.wants/getty.target"), "")
	plant(t, filepath.Join(root, "etc/systemd/journald.conf"), "[Journal]\n")
	if err := arrangeUnits(root); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(root, "lib/systemd/system/multi-user.target.wants/getty.target")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an unwanted unit is still wanted: %v", err)
	}
	for link, want := range map[string]string{
		"etc/systemd/system/multi-user.target.wants/kubelet.service": "/etc/systemd/system/kubelet.service",
		"etc/systemd/system/systemd-binfmt.service":                  "/dev/null",
	} {
		if got, err := os.Readlink(filepath.Join(root, link)); err != nil || got != want {
			t.Errorf("%s points to %q, %v; want %q", link, got, err, want)
		}
	}
	text, err := os.ReadFile(filepath.Join(root, "etc/systemd/journald.conf"))
	if err != nil || string(text) != "[Journal]\nReadKMsg=no\n" {
		t.Errorf("journald.conf is %q, %v", text, err)
	}
}

func TestKindFilesGetTheModesOfItsDockerfile(t *testing.T) {
	from, root := t.TempDir(), t.TempDir()
	plant(t, filepath.Join(from, "kind/bin/hook.sh"), "#!/bin/sh\n")
	plant(t, filepath.Join(from, "etc/crictl.yaml"), "x\n")
	if err := copyKindFiles(root, from); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{"kind/bin/hook.sh": 0o755, "etc/crictl.yaml": 0o644} {
		info, err := os.Stat(filepath.Join(root, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, %v; want %v", name, info, err, want)
		}
	}
}

func TestMountsBelowComeOffInReverse(t *testing.T) {
	const table = "22 1 8:1 / / rw - ext4 /dev/a rw\n" +
		"30 22 0:5 / /tmp/work/root/proc rw - proc proc rw\n" +
		"31 22 0:6 / /tmp/work2/root/proc rw - proc proc rw\n" +
		"32 30 0:7 / /tmp/work/root/proc/sys rw - proc proc rw\n"
	want := []string{"/tmp/work/root/proc/sys", "/tmp/work/root/proc"}
	if diff := cmp.Diff(want, mountsBelow(table, "/tmp/work")); diff != "" {
		t.Error(diff)
	}
}

func TestACommandIsAskedToEndWithWhatItStarted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	folder := t.TempDir()
	script := `trap 'echo tidy > ` + folder + `/tidy; exit 1' TERM; echo up > ` + folder + `/up; sleep 60 & wait`
	ended := make(chan error, 1)
	go func() { ended <- command(ctx, nil, "sh", "-c", script) }()
	for up := false; !up; {
		select {
		case err := <-ended:
			t.Fatal("it ended by itself:", err)
		default:
			_, err := os.Stat(filepath.Join(folder, "up"))
			up = err == nil
			runtime.Gosched()
		}
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("an interrupted command is no error")
	}
	if _, err := os.Stat(filepath.Join(folder, "tidy")); err != nil {
		t.Error("it was not given the time to tidy up:", err)
	}
}

func plant(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func pack(t *testing.T, work string, image containerImage) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := writeArchive(&out, work, []containerImage{image}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read returns the files and links of an archive.
func read(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(reader); err != nil {
			t.Fatal(err)
		}
	}
}
