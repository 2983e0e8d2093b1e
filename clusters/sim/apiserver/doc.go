// Package apiserver is a Kubernetes API server in memory: a log of commits, and
// the rules by which the real one accepts, refuses and announces writes. It
// refuses to act on its own: it has no goroutine, no clock and no randomness,
// serves one caller at a time, and answers 501 to what it does not model.
//
// Objects that were committed are never changed again. Readers share them, and
// so must whoever gets one from a Commit.
package apiserver
