// Package canary holds cleaners with one known defect each, to prove that the
// harness finds it: some are written here, the others are the cleaner that ships
// with one thing changed between it and its configuration or the API. It does
// not import that cleaner, and none of the defects may ever be repaired.
package canary
