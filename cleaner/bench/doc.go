// Package bench holds the benchmarks of danm-cleaner on a real control plane;
// `make bench` runs them. It has no code of its own and measures nothing that a
// plain `go test ./...` would wait for.
package bench
