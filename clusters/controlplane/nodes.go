package controlplane

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/danm-chaos/danm-chaos/clusters"
	"github.com/danm-chaos/danm-chaos/clusters/controlplane/hollow"
)

// AddNode implements clusters.NodeAdder.
func (c *Cluster) AddNode(ctx context.Context, n clusters.Node) error {
	if err := c.reserveNode(n.Name); err != nil {
		return err
	}
	node, err := c.startNode(ctx, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		delete(c.nodes, n.Name)
		return fmt.Errorf("adding node %s: %w", n.Name, err)
	}
	c.nodes[n.Name] = node
	return nil
}

// reserveNode takes the name before the node is started without the lock.
func (c *Cluster) reserveNode(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, taken := c.nodes[name]; taken {
		return fmt.Errorf("adding node %s: it is there already", name)
	}
	if c.closed {
		return fmt.Errorf("adding node %s: the cluster is closed", name)
	}
	c.nodes[name] = nil
	return nil
}

func (c *Cluster) startNode(ctx context.Context, n clusters.Node) (*hollow.Node, error) {
	config, err := c.RESTConfig(clusters.UserNodePrefix + n.Name)
	if err != nil {
		return nil, err
	}
	return hollow.Start(ctx, hollow.Config{
		Name: n.Name, Labels: n.Labels, REST: config,
		Group: c.options.Group, Variant: c.options.Variant, Seed: c.options.Seed,
		Recorder: c.options.Recorder, Logger: c.nodeLog.WithValues("node", n.Name),
	})
}

// RemoveNode implements clusters.NodeAdder.
func (c *Cluster) RemoveNode(ctx context.Context, name string) error {
	node, err := c.node(name)
	if err != nil {
		return fmt.Errorf("removing node: %w", err)
	}
	// Not Stop: whatever still runs there is lost, and the history must say so.
	node.Fail()
	config, err := c.RESTConfig(clusters.UserHarness)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("removing node %s: %w", name, err)
	}
	if err := client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing node %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, name)
	return nil
}

// FailNode implements clusters.NodeFailer.
func (c *Cluster) FailNode(_ context.Context, name string) error {
	node, err := c.node(name)
	if err != nil {
		return fmt.Errorf("failing node: %w", err)
	}
	node.Fail()
	return nil
}

// RestoreNode implements clusters.NodeFailer.
func (c *Cluster) RestoreNode(ctx context.Context, name string) error {
	node, err := c.node(name)
	if err != nil {
		return fmt.Errorf("restoring node: %w", err)
	}
	if err := node.Restore(ctx); err != nil {
		return fmt.Errorf("restoring node %s: %w", name, err)
	}
	return nil
}

func (c *Cluster) node(name string) (*hollow.Node, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if node := c.nodes[name]; node != nil {
		return node, nil
	}
	return nil, fmt.Errorf("there is no node %s", name)
}

// stopNodes ends all nodes at once. The caller holds the lock.
func (c *Cluster) stopNodes() {
	var stopping sync.WaitGroup
	for _, node := range c.nodes {
		if node != nil {
			stopping.Go(node.Stop)
		}
	}
	stopping.Wait()
	clear(c.nodes)
}

// nodesLog is the name under which all nodes log.
const nodesLog = "nodes"

// openNodeLog returns a log for the nodes and what closes it.
func openNodeLog(path string) (logr.Logger, io.Closer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return logr.Discard(), nil, fmt.Errorf("opening log of the nodes: %w", err)
	}
	return logr.FromSlogHandler(slog.NewTextHandler(file, nil)), file, nil
}
