package nodeimage

import (
	"bytes"
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

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

// tarTime is the time of every packed file, so that the same content makes the
// same image.
var tarTime = time.Unix(0, 0)

// builder makes one image in a work folder.
type builder struct {
	recipe   recipe
	work     string
	programs map[string]string
	progress io.Writer
}

func (b *builder) root() string { return filepath.Join(b.work, "root") }

// step tells of a step, and of how long it took.
func (b *builder) step(name string, do func() error) error {
	began := time.Now()
	fmt.Fprintf(b.progress, "node image: %s ...\n", name)
	if err := do(); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	fmt.Fprintf(b.progress, "node image: %s took %.0f s\n", name, time.Since(began).Seconds())
	return nil
}

// build makes the image. Two builds at a time would do the same work twice, so
// the second waits and finds what the first made.
func (r recipe) build(ctx context.Context, progress io.Writer) (err error) {
	cache, err := controlplane.CacheFolder()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return fmt.Errorf("making the cache folder: %w", err)
	}
	unlock, err := controlplane.LockFile(ctx, filepath.Join(cache, "nodeimage.lock"), progress)
	if err != nil {
		return fmt.Errorf("locking the node image: %w", err)
	}
	defer unlock()
	if engine.HasImage(ctx, r.tag()) {
		return nil
	}
	// We hold the lock, so a folder that is there is of a build that was killed.
	if err := removeWork(workPattern()); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", workName+"*")
	if err != nil {
		return fmt.Errorf("making a work folder: %w", err)
	}
	defer func() { err = errors.Join(err, removeWork(work)) }()
	b := &builder{recipe: r, work: work, progress: progress}
	if err := b.run(ctx); err != nil {
		return fmt.Errorf("building the node image: %w", err)
	}
	return nil
}

func (b *builder) run(ctx context.Context) error {
	tools := b.recipe.tools
	if err := b.step("programs", func() error { return tools.Build(ctx, b.progress) }); err != nil {
		return err
	}
	b.programs = tools.Paths
	own, err := BuildOwn(ctx, filepath.Join(b.work, "own"))
	if err != nil {
		return err
	}
	for name, path := range own {
		b.programs[name] = path
	}
	if err := b.step("Debian root", func() error { return b.bootstrap(ctx) }); err != nil {
		return err
	}
	return b.assemble(ctx)
}

// assemble packs the container images while the root is still Debian's alone,
// then makes it a node's.
func (b *builder) assemble(ctx context.Context) error {
	archive := filepath.Join(b.work, "images.tar")
	if err := b.step("container images", func() error { return b.pack(ctx, archive) }); err != nil {
		return err
	}
	err := dressRoot(b.root(), b.recipe.kindFiles, b.recipe.version, b.programs)
	if err != nil {
		return err
	}
	if err := b.writeBaseSpec(ctx); err != nil {
		return err
	}
	if err := b.step("import into containerd", func() error { return b.importImages(ctx, archive) }); err != nil {
		return err
	}
	return b.step("import into the engine", func() error { return b.commit(ctx) })
}

func (b *builder) bootstrap(ctx context.Context) error {
	return command(ctx, nil, "debootstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), suite, b.root())
}

func (b *builder) pack(ctx context.Context, archive string) error {
	var tags bytes.Buffer
	if err := command(ctx, &tags, b.programs["kubeadm"], "config", "images", "list", "--kubernetes-version", b.recipe.version); err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(b.recipe.kindFiles, "etc/containerd/config.toml"))
	if err != nil {
		return fmt.Errorf("reading containerd's configuration: %w", err)
	}
	sandbox, err := sandboxImage(string(config))
	if err != nil {
		return err
	}
	images, err := planImages(strings.Fields(tags.String()), sandbox, b.root(), b.programs)
	if err != nil {
		return err
	}
	file, err := os.Create(archive)
	if err != nil {
		return err
	}
	return errors.Join(writeArchive(file, b.work, images), file.Close())
}

func (b *builder) writeBaseSpec(ctx context.Context) error {
	var out bytes.Buffer
	if err := command(ctx, &out, b.programs["ctr"], "oci", "spec"); err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal(out.Bytes(), &spec); err != nil {
		return fmt.Errorf("decoding containerd's specification: %w", err)
	}
	data, err := json.MarshalIndent(baseSpec(spec), "", "  ")
	if err != nil {
		return fmt.Errorf("encoding containerd's specification: %w", err)
	}
	return writeFile(b.root(), "etc/containerd/cri-base.json", string(data))
}

// commit makes an image of the root. What `import` cannot say about an image,
// a Dockerfile can.
func (b *builder) commit(ctx context.Context) error {
	base := b.recipe.tag() + "-base"
	pack := exec.CommandContext(ctx, "tar", "--numeric-owner", "-C", b.root(), "-c", ".")
	content, err := pack.StdoutPipe()
	if err != nil {
		return err
	}
	if err := pack.Start(); err != nil {
		return fmt.Errorf("packing the root: %w", err)
	}
	_, err = engine.RunInput(ctx, content, "import", "-", base)
	if err = errors.Join(err, pack.Wait()); err != nil {
		return err
	}
	_, err = engine.RunInput(ctx, strings.NewReader(dockerfile(base)), "build", "--tag", b.recipe.tag(), "-")
	_, errTag := engine.Run(context.WithoutCancel(ctx), "rmi", "--no-prune", base)
	return errors.Join(err, errTag)
}

// dockerfile tells systemd that it is in a container, and the engine how
// systemd is stopped.
func dockerfile(base string) string {
	return "FROM " + base + `
ENV container=docker
STOPSIGNAL SIGRTMIN+3
ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]
`
}
