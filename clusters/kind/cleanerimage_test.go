package kind

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

// untar returns the regular files of an archive by name.
func untar(t *testing.T, archive []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	in := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if files[header.Name], err = io.ReadAll(in); err != nil {
			t.Fatal(err)
		}
	}
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatal(err)
	}
}

// TestTheCleanersImageIsOneStaticProgram: no shell, no library, not root.
func TestTheCleanersImageIsOneStaticProgram(t *testing.T) {
	needEngine(t)
	c := bare(t)
	c.data.Cluster = clusterName(filepath.Base(t.TempDir()))
	archive := filepath.Join(c.data.Folder, "cleaner.tar")
	if err := c.buildCleaner(t.Context(), buildCleaner(t), archive); err != nil {
		t.Fatal(err)
	}
	if engine.HasImage(t.Context(), cleanerImage(c.data.Cluster)) {
		t.Error("the engine still has the image")
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	files := untar(t, data)
	var manifest []struct {
		Config string
		Layers []string
	}
	decode(t, files["manifest.json"], &manifest)
	var image struct {
		Config struct {
			User       string
			Entrypoint []string
		}
	}
	decode(t, files[manifest[0].Config], &image)
	if image.Config.User != "65532:65532" {
		t.Errorf("it runs as %q", image.Config.User)
	}
	var names []string
	for _, layer := range manifest[0].Layers {
		for name := range untar(t, files[layer]) {
			names = append(names, name)
		}
	}
	if diff := cmp.Diff([]string{"danm-cleaner"}, names); diff != "" {
		t.Fatalf("files (-want +got):\n%s", diff)
	}
	program, err := elf.NewFile(bytes.NewReader(untar(t, files[manifest[0].Layers[len(manifest[0].Layers)-1]])["danm-cleaner"]))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range program.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is not static")
		}
	}
}
