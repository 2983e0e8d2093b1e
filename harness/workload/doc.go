// Package workload builds a lane, which is a StatefulSet with nodes, a
// namespace and a network of its own, reads it back and takes it down. It
// injects no fault and judges nothing.
package workload
