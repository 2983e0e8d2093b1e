package kind

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/danm-chaos/danm-chaos/clusters/controlplane"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

// imageRepository is the name of the cleaner's image, which has the cluster's
// name as its tag. The engine has it only until the nodes have it.
const imageRepository = "danm-chaos/cleaner"

func cleanerImage(cluster string) string { return imageRepository + ":" + cluster }

// loadCleaner builds the image that users build and gives it to all nodes.
func (c *Cluster) loadCleaner(ctx context.Context, program string) error {
	archive := filepath.Join(c.data.Folder, "cleaner.tar")
	if err := c.buildCleaner(ctx, program, archive); err != nil {
		return fmt.Errorf("building the cleaner's image: %w", err)
	}
	image, err := os.ReadFile(archive)
	if err != nil {
		return fmt.Errorf("reading the cleaner's image: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		group.Go(func() error { return loadImage(ctx, n.name, image) })
	}
	return group.Wait()
}

// loadImage gives a node what is in an archive.
func loadImage(ctx context.Context, node string, archive []byte) error {
	if err := inNode(ctx, node, archive, "ctr", "--namespace", "k8s.io", "images", "import", "--all-platforms", "-"); err != nil {
		return fmt.Errorf("loading an image into %s: %w", node, err)
	}
	return nil
}

// buildCleaner builds by the Dockerfile, from the program that is there: what
// is tested is that program, and no base image has to come from elsewhere.
func (c *Cluster) buildCleaner(ctx context.Context, program, archive string) (err error) {
	folder, err := c.buildContext(program)
	if err != nil {
		return err
	}
	image := cleanerImage(c.data.Cluster)
	if _, err := engine.Run(ctx, "build", "--quiet", "--target", "prebuilt", "--tag", image, folder); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, removeCleanerImage(context.WithoutCancel(ctx), c.data.Cluster)) }()
	_, err = engine.Run(ctx, "save", "--output", archive, image)
	return err
}

// buildContext makes a folder with what the Dockerfile takes and nothing else:
// a checkout holds gigabytes of built programs.
func (c *Cluster) buildContext(program string) (string, error) {
	root, err := controlplane.ProjectRoot()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(c.data.Folder, "cleaner")
	if err := os.MkdirAll(filepath.Join(folder, "bin"), 0o755); err != nil {
		return "", err
	}
	for from, to := range map[string]string{filepath.Join(root, "Dockerfile"): "Dockerfile", program: "bin/danm-cleaner"} {
		data, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(folder, to), data, 0o755); err != nil {
			return "", err
		}
	}
	return folder, nil
}

// removeCleanerImage takes the image from the engine, if it is there.
func removeCleanerImage(ctx context.Context, cluster string) error {
	image := cleanerImage(cluster)
	if !engine.HasImage(ctx, image) {
		return nil
	}
	if _, err := engine.Run(ctx, "rmi", "--force", image); err != nil {
		return fmt.Errorf("removing the cleaner's image: %w", err)
	}
	return nil
}
