// Package canary holds small cleaners with one known defect each, to prove
// that the harness finds it. They share no code with the cleaner that ships,
// and none of them may ever be repaired or installed.
package canary
