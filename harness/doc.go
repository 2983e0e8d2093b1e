// Package harness runs a scenario on a cluster: schedule, workload and
// nemesis, heal, settle, check, result. It knows clusters by their interfaces
// only and holds no rule about addresses.
package harness
