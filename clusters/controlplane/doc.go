// Package controlplane runs a real etcd, kube-apiserver, kube-controller-manager
// and kube-scheduler as child processes on loopback, with hollow nodes. It never
// imports Kubernetes itself: its programs are built from clusters/tools or
// found in KUBERNETES_BIN_DIR. It needs Linux, for the parent-death signal and
// for /proc.
package controlplane
