package nodeimage

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// containerImage is an image that goes into the node: a program, by itself or
// on top of some folders.
type containerImage struct {
	tag     string
	program string // on this machine
	path    string // in the image
	// root and folders are what else is in the image; most need nothing.
	root    string
	folders []string
}

// imageConfig and the manifest are the parts of the archive format that an
// importer reads.
type imageConfig struct {
	Architecture string        `json:"architecture"`
	OS           string        `json:"os"`
	Config       runtimeConfig `json:"config"`
	RootFS       rootFS        `json:"rootfs"`
}

type runtimeConfig struct {
	Env        []string `json:"Env"`
	Entrypoint []string `json:"Entrypoint"`
}

type rootFS struct {
	Type    string   `json:"type"`
	DiffIDs []string `json:"diff_ids"`
}

type manifestEntry struct {
	Config   string   `json:"Config"`
	RepoTags []string `json:"RepoTags"`
	Layers   []string `json:"Layers"`
}

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// writeArchive writes the images as one archive of the kind that `docker save`
// makes. Layers are put into work first, because their sums come before them.
func writeArchive(w io.Writer, work string, images []containerImage) error {
	out := tar.NewWriter(w)
	var manifest []manifestEntry
	for i, image := range images {
		entry, err := writeImage(out, filepath.Join(work, fmt.Sprintf("layer-%d.tar", i)), image)
		if err != nil {
			return fmt.Errorf("packing image %s: %w", image.tag, err)
		}
		manifest = append(manifest, entry)
	}
	if err := writeJSON(out, "manifest.json", manifest); err != nil {
		return err
	}
	return out.Close()
}

func writeImage(out *tar.Writer, layerFile string, image containerImage) (manifestEntry, error) {
	sum, err := writeLayer(layerFile, image)
	if err != nil {
		return manifestEntry{}, err
	}
	config := imageConfig{
		Architecture: runtime.GOARCH, OS: "linux",
		Config: runtimeConfig{Env: []string{searchPath}, Entrypoint: []string{"/" + image.path}},
		RootFS: rootFS{Type: "layers", DiffIDs: []string{"sha256:" + sum}},
	}
	entry := manifestEntry{Config: configName(config), RepoTags: []string{image.tag}, Layers: []string{sum + "/layer.tar"}}
	if err := writeJSON(out, entry.Config, config); err != nil {
		return entry, err
	}
	if err := addFile(out, layerFile, entry.Layers[0], 0o644); err != nil {
		return entry, err
	}
	return entry, os.Remove(layerFile)
}

// configName is the name by which importers check the content.
func configName(c imageConfig) string {
	data, _ := json.Marshal(c) // strings only
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:]) + ".json"
}

// writeLayer returns the sum of what it wrote, in hexadecimal.
func writeLayer(file string, image containerImage) (sum string, err error) {
	f, err := os.Create(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	layer := tar.NewWriter(io.MultiWriter(f, hash))
	for _, folder := range image.folders {
		if err := addTree(layer, image.root, folder); err != nil {
			return "", err
		}
	}
	if err := addFile(layer, image.program, image.path, 0o755); err != nil {
		return "", err
	}
	if err := layer.Close(); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), f.Close()
}

// addTree adds a folder, a link or a file below root with what is in it.
func addTree(out *tar.Writer, root, name string) error {
	return filepath.WalkDir(filepath.Join(root, name), func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		inside, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		return addEntry(out, path, inside, info)
	})
}

func addEntry(out *tar.Writer, path, inside string, info os.FileInfo) error {
	target := ""
	if info.Mode()&os.ModeSymlink != 0 {
		var err error
		if target, err = os.Readlink(path); err != nil {
			return err
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return err
	}
	// Everything is root's, whoever packs it, and has no time: the same content
	// makes the same image.
	header.Name, header.Uid, header.Gid, header.Uname, header.Gname = inside, 0, 0, "", ""
	header.ModTime = tarTime
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return nil
	}
	return copyFile(out, path)
}

func addFile(out *tar.Writer, path, inside string, mode int64) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	header := &tar.Header{Name: strings.TrimPrefix(inside, "/"), Typeflag: tar.TypeReg, Size: info.Size(), Mode: mode, ModTime: tarTime}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	return copyFile(out, path)
}

func copyFile(w io.Writer, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = io.Copy(w, file)
	return err
}

func writeJSON(out *tar.Writer, name string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", name, err)
	}
	header := &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: int64(len(data)), Mode: 0o644, ModTime: tarTime}
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(out, bytes.NewReader(data))
	return err
}
