package kind

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/kind/engine"
)

// controlPlaneLabel is on the node that must not be failed.
const controlPlaneLabel = "node-role.kubernetes.io/control-plane"

// FailNode implements clusters.NodeFailer.
func (c *Cluster) FailNode(ctx context.Context, name string) error {
	if err := c.onWorker(ctx, "failing", name, "kill", name); err != nil {
		return err
	}
	return c.lose(name)
}

// lose records the attachments that died with a node.
func (c *Cluster) lose(name string) error {
	if c.attachments == nil {
		return nil
	}
	if err := c.attachments.lose(name); err != nil {
		return fmt.Errorf("recording what node %s lost: %w", name, err)
	}
	return nil
}

// RestoreNode implements clusters.NodeFailer. A node may come back with another
// address, so routes are made again, on both sides.
func (c *Cluster) RestoreNode(ctx context.Context, name string) error {
	if err := c.checkWorker(name); err != nil {
		return fmt.Errorf("restoring node: %w", err)
	}
	// Two nodes that start at once could swap their addresses.
	c.restoring.Lock()
	defer c.restoring.Unlock()
	if _, err := engine.Run(ctx, "start", name); err != nil {
		return fmt.Errorf("restoring node %s: %w", name, err)
	}
	all := slices.Clone(c.nodes)
	if err := refreshAddresses(ctx, all); err != nil {
		return fmt.Errorf("restoring node %s: %w", name, err)
	}
	for _, n := range all {
		if n.address == "" {
			continue // without power
		}
		if err := setRoutes(ctx, n.name, all); err != nil {
			return fmt.Errorf("restoring node %s: %w", name, err)
		}
	}
	return nil
}

// AddNode implements clusters.NodeAdder: it switches a worker on if it has no
// power, waits until it is registered and labels it.
func (c *Cluster) AddNode(ctx context.Context, n clusters.Node) error {
	if err := c.checkWorker(n.Name); err != nil {
		return fmt.Errorf("adding node: %w", err)
	}
	hasPower, err := hasPower(ctx, n.Name)
	if err != nil {
		return fmt.Errorf("adding node %s: %w", n.Name, err)
	}
	if !hasPower {
		if err := c.RestoreNode(ctx, n.Name); err != nil {
			return err
		}
	}
	if err := c.label(ctx, n); err != nil {
		return fmt.Errorf("adding node %s: %w", n.Name, err)
	}
	return nil
}

// label waits for the Node object, which a kubelet makes again that was
// started without one.
func (c *Cluster) label(ctx context.Context, n clusters.Node) error {
	patch, err := json.Marshal(object{"metadata": object{"labels": n.Labels}})
	if err != nil {
		return fmt.Errorf("encoding labels: %w", err)
	}
	return poll(ctx, func(ctx context.Context) (bool, error) {
		_, err := c.client.CoreV1().Nodes().Patch(ctx, n.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// RemoveNode implements clusters.NodeAdder. The machine keeps its disk, so one
// that is added again has late CNI DELs to do.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	hasPower, err := hasPower(ctx, name)
	if err != nil {
		return fmt.Errorf("removing node %s: %w", name, err)
	}
	if hasPower {
		if err := c.FailNode(ctx, name); err != nil {
			return err
		}
	}
	return c.DeleteNode(ctx, name)
}

func hasPower(ctx context.Context, name string) (bool, error) {
	running, err := engine.Run(ctx, "inspect", "--format", "{{.State.Running}}", name)
	return running == "true", err
}

// DeleteNode implements clusters.NodeDeleter.
func (c *Cluster) DeleteNode(ctx context.Context, name string) error {
	if err := c.checkWorker(name); err != nil {
		return fmt.Errorf("deleting node: %w", err)
	}
	err := c.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	return nil
}

// Workers implements clusters.WorkerLister.
func (c *Cluster) Workers() []string {
	var names []string
	for _, n := range c.nodes {
		if !n.isControlPlane {
			names = append(names, n.name)
		}
	}
	return names
}

func (c *Cluster) checkWorker(name string) error {
	if !slices.Contains(c.Workers(), name) {
		return fmt.Errorf("there is no worker %s", name)
	}
	return nil
}

// dressNodes gives every node what the image does not have: network and
// workload image.
func (c *Cluster) dressNodes(ctx context.Context) error {
	var err error
	if c.nodes, err = awaitNodes(ctx, c.client, c.options.Workers+1); err != nil {
		return err
	}
	if err := refreshAddresses(ctx, c.nodes); err != nil {
		return err
	}
	files, err := c.readNodeFiles()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range c.nodes {
		group.Go(func() error { return c.dress(ctx, n, files) })
	}
	return group.Wait()
}

// nodeFiles are what every node is given.
type nodeFiles struct {
	workload []byte // an archive
	plugin   []byte // DANM's, or nothing
	admin    string // kubeconfig as seen by nodes
}

func (c *Cluster) readNodeFiles() (f nodeFiles, err error) {
	if f.workload, err = os.ReadFile(c.workloadArchive()); err != nil {
		return f, fmt.Errorf("reading the workload image: %w", err)
	}
	if c.options.CNI == "" {
		return f, nil
	}
	if f.plugin, err = os.ReadFile(c.programs[pluginName]); err != nil {
		return f, fmt.Errorf("reading DANM's plugin: %w", err)
	}
	if f.admin, err = c.provider.KubeConfig(c.data.Cluster, true); err != nil {
		return f, fmt.Errorf("getting access for nodes: %w", err)
	}
	return f, nil
}

func (c *Cluster) dress(ctx context.Context, n node, files nodeFiles) error {
	if err := errors.Join(setRoutes(ctx, n.name, c.nodes), keepRoutes(ctx, n.name)); err != nil {
		return err
	}
	if err := loadImage(ctx, n.name, files.workload); err != nil {
		return err
	}
	if c.options.CNI != "" {
		if err := installPlugin(ctx, n.name, files); err != nil {
			return fmt.Errorf("installing DANM's plugin in %s: %w", n.name, err)
		}
	}
	config, err := networkConfig(n, c.options.Group, c.options.CNI)
	if err != nil {
		return err
	}
	// Last: with it, the node becomes Ready and may be given pods.
	if err := inNode(ctx, n.name, []byte(config), "cp", "/dev/stdin", cniFile); err != nil {
		return fmt.Errorf("configuring the network of %s: %w", n.name, err)
	}
	return nil
}

func installPlugin(ctx context.Context, name string, files nodeFiles) error {
	kubeconfig, err := impersonating([]byte(files.admin), clusters.UserNodePrefix+name)
	if err != nil {
		return err
	}
	if err := inNode(ctx, name, kubeconfig, "install", "-m", "0600", "/dev/stdin", cniKubeconfig); err != nil {
		return err
	}
	if err := inNode(ctx, name, files.plugin, "install", "-D", "-m", "0755", "/dev/stdin", cniProgramKept); err != nil {
		return err
	}
	return inNode(ctx, name, nil, "sh", "-ec", mendPluginScript)
}

// inNode runs a program in a node, with something to read.
func inNode(ctx context.Context, name string, in []byte, argv ...string) error {
	_, err := engine.RunInput(ctx, bytes.NewReader(in), append([]string{"exec", "--interactive", name}, argv...)...)
	return err
}

// awaitNodes returns the nodes when all are registered and have their range of
// addresses, by name.
func awaitNodes(ctx context.Context, client kubernetes.Interface, count int) ([]node, error) {
	var found []node
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		found = found[:0]
		for _, n := range list.Items {
			_, isControlPlane := n.Labels[controlPlaneLabel]
			found = append(found, node{name: n.Name, podCIDR: n.Spec.PodCIDR, isControlPlane: isControlPlane})
		}
		unready := func(n node) bool { return n.podCIDR == "" }
		return len(found) == count && !slices.ContainsFunc(found, unready), nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for %d nodes to be registered: %w", count, err)
	}
	return found, nil
}

// awaitReady returns when every node is Ready.
func awaitReady(ctx context.Context, client kubernetes.Interface) error {
	var waiting []string
	err := poll(ctx, func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		waiting = waiting[:0]
		for _, n := range list.Items {
			if !isReady(n) {
				waiting = append(waiting, n.Name)
			}
		}
		return len(waiting) == 0, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for nodes %v to be Ready: %w", waiting, err)
	}
	return nil
}

func isReady(n corev1.Node) bool {
	for _, condition := range n.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
