// Package chaosmesh lets Chaos Mesh break what this project cannot, or should
// not, break by itself. It chooses no victim: every pod is named by whoever
// calls, because what Chaos Mesh draws at random no seed repeats. It has no
// IOChaos, which spoils the files of a volume: a cleaner of DANM has none, all
// that it knows is in the API.
package chaosmesh
