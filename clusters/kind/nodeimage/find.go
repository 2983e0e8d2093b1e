package nodeimage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"sigs.k8s.io/kind/pkg/apis/config/defaults"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

// pullTimeout bounds the attempt to pull the public image. Where registries are
// walled off the answer may never come.
const pullTimeout = 5 * time.Minute

// repository is the name of built images. It is of this machine only.
const repository = "danm-chaos/node"

// Options say which image is wanted.
type Options struct {
	// Image is taken as it is, and pulled if it is not there. If empty: a
	// built one that is there, else the public one, else one is built.
	Image string
	// CgroupV1 is a host on which the public image does not start.
	CgroupV1 bool
	Progress io.Writer
}

// Obtain returns the name of an image that is there.
func Obtain(ctx context.Context, o Options) (string, error) {
	if o.Image != "" {
		return o.Image, pull(ctx, o.Image, o.Progress)
	}
	r, err := newRecipe(ctx)
	if err == nil && engine.HasImage(ctx, r.tag()) {
		return r.tag(), nil
	}
	if !o.CgroupV1 {
		errPull := pull(ctx, defaults.Image, o.Progress)
		if errPull == nil {
			return defaults.Image, nil
		}
		fmt.Fprintf(o.Progress, "no public node image, so one is built: %v\n", errPull)
	}
	if err != nil {
		return "", err
	}
	if err := checkBuilder(); err != nil {
		return "", err
	}
	return r.tag(), r.build(ctx, o.Progress)
}

// Plan is what Obtain would do.
type Plan struct {
	Image   string
	IsThere bool
	// Trouble says why the image could not be built, if it had to be.
	Trouble error
}

// Find says what Obtain would do. It pulls and builds nothing.
func Find(ctx context.Context, o Options) Plan {
	if o.Image != "" {
		return Plan{Image: o.Image, IsThere: engine.HasImage(ctx, o.Image)}
	}
	r, err := newRecipe(ctx)
	if err == nil && engine.HasImage(ctx, r.tag()) {
		return Plan{Image: r.tag(), IsThere: true}
	}
	if !o.CgroupV1 && engine.HasImage(ctx, defaults.Image) {
		return Plan{Image: defaults.Image, IsThere: true}
	}
	if err == nil {
		err = checkBuilder()
	}
	return Plan{Image: r.tag(), Trouble: err}
}

func pull(ctx context.Context, image string, progress io.Writer) error {
	if engine.HasImage(ctx, image) {
		return nil
	}
	fmt.Fprintf(progress, "pulling node image %s\n", image)
	ctx, cancel := context.WithTimeout(ctx, pullTimeout)
	defer cancel()
	_, err := engine.Run(ctx, "pull", "--quiet", image)
	return err
}

// checkBuilder says what is missing for a build, before anything is compiled.
func checkBuilder() error {
	if os.Geteuid() != 0 {
		return &engine.UnfitHostError{Detail: "building a node image takes root", Cure: "be root, or name an image that is there with --node-image"}
	}
	for _, program := range []string{"debootstrap", "tar"} {
		if _, err := exec.LookPath(program); err != nil {
			return &engine.UnfitHostError{Detail: "building a node image takes " + program, Cure: "apt-get install " + program}
		}
	}
	return nil
}

// recipe is everything that decides what a built image will be.
type recipe struct {
	tools     controlplane.Tools
	version   string // of Kubernetes
	kindFiles string // folder of kind's files for a node
	kind      string // version of kind
	source    []byte // what this project puts into the node
}

func newRecipe(ctx context.Context) (recipe, error) {
	var r recipe
	var err error
	if r.tools, err = controlplane.FindTools(ctx, toolSets()); err != nil {
		return r, err
	}
	if r.version, err = kubernetesVersion(r.tools.Keys); err != nil {
		return r, err
	}
	root, err := controlplane.ProjectRoot()
	if err != nil {
		return r, err
	}
	if r.source, err = readSources(root); err != nil {
		return r, err
	}
	r.kindFiles, r.kind, err = findKindFiles(ctx, root)
	return r, err
}

// kubernetesVersion reads it from the key "kubernetes-v1.37.2-<sum>".
func kubernetesVersion(keys []string) (string, error) {
	for _, key := range keys {
		if rest, ok := strings.CutPrefix(key, "kubernetes-"); ok {
			version, _, _ := strings.Cut(rest, "-")
			return version, nil
		}
	}
	return "", errors.New("finding the version of Kubernetes: no such set of tools")
}

// sourcePatterns are the main that goes into the image, and what lays it out.
var sourcePatterns = []string{
	"cmd/pause/*.go",
	"nodeimage/archive.go", "nodeimage/build.go", "nodeimage/images.go", "nodeimage/rootfs.go", "nodeimage/tools.go",
}

// readSources returns the text of everything of ours that decides what is in
// the image.
func readSources(root string) ([]byte, error) {
	var all []byte
	for _, pattern := range sourcePatterns {
		paths, err := filepath.Glob(filepath.Join(root, "clusters/kind", pattern)) // sorted
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("reading the sources of the node image: %w", err)
			}
			all = append(all, text...)
		}
	}
	return all, nil
}

// findKindFiles returns the folder with the files of kind's base image.
func findKindFiles(ctx context.Context, root string) (folder, version string, err error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", "sigs.k8s.io/kind")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		return "", "", fmt.Errorf("finding kind's files: %w", err)
	}
	var module struct{ Dir, Version string }
	if err := json.Unmarshal(out, &module); err != nil {
		return "", "", fmt.Errorf("finding kind's files: %w", err)
	}
	return filepath.Join(module.Dir, "images/base/files"), module.Version, nil
}

// tag is the name of the built image.
func (r recipe) tag() string {
	parts := append([]string{r.kind, suite, strings.Join(packages, " "), string(r.source)}, r.tools.Keys...)
	return repository + ":" + r.version + "-" + versionKey(parts...)
}
