// Package kind runs a real cluster whose nodes are containers: real kubelets,
// containerd and CNI plugins, and nodes that lose power. It touches no other
// cluster, no network that others use and no kubeconfig but its own.
package kind
