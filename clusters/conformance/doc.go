// Package conformance is one suite of checks that every API server of a cluster
// must pass, simulated or real. It refuses to look behind the API: a server is
// what it answers.
package conformance
